"""Damaged files of every kind: a sentence, or what was read is provably what was there; and no code is run."""

from __future__ import annotations

import json
import sys
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from idiolect.cli.error_boundary import sentence_of
from idiolect.errors import UserError

from .mutations import damaged, hostile, toml
from .targets import Target, targets

RUNS_CODE = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "pty.spawn",
    "socket.connect",
)
PAYLOAD = b"cos\nsystem\n(S'touch mutated-code-was-run'\ntR."  # a pickle that runs a command
SMALL, LARGE = 100, 10_000


class Watch:
    """Notes events that run other code while something is read; a hook of the interpreter stays for good."""

    def __init__(self) -> None:
        self.seen: list[str] | None = None
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.seen is not None and event in RUNS_CODE:
            self.seen.append(f"{event}{arguments}")


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    found = Watch()
    yield found
    found.seen = None


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[Target]:
    return targets(tmp_path_factory.mktemp("sound"))


def changed(path: Path, whole: bytes, random: Random) -> bytes:
    """Returns other content: a pickle that runs a command, a document that lies, or bytes that are damaged."""
    if random.randrange(50) == 0:
        return PAYLOAD
    if path.suffix == ".json" and random.randrange(2):
        return json.dumps(hostile(json.loads(whole), random)).encode()
    if path.suffix == ".toml" and random.randrange(2):
        document = hostile(tomllib.loads(whole.decode()), random)
        return "\n".join(f"{json.dumps(key)} = {toml(value)}" for key, value in document.items()).encode()
    return damaged(whole, random)


def read_one(target: Target, seed: int, before: str) -> str:
    """Damages one file, reads it, and puts it back; returns how it ended, or what is wrong."""
    random = Random(f"{target.name} {seed}")
    path = random.choice(target.files)
    whole = path.read_bytes()
    path.write_bytes(changed(path, whole, random))
    try:
        found = target.read()
    except UserError as error:
        return "refused" if "\n" not in str(error) else f"{target.name}, seed {seed}: not one line: {error}"
    except Exception as error:
        if sentence_of(error) is not None:
            return "refused at the boundary"
        trace = "".join(traceback.format_exception(error)[-4:])
        return f"{target.name}, seed {seed}, {path.name}: {trace}"
    finally:
        path.write_bytes(whole)
    if found.digest == before:
        return "the same"
    if found.said:
        return "passed over, by name"
    if target.sealed or (target.name.startswith(("own", "known")) and not found.sums_differ):
        return f"{target.name}, seed {seed}, {path.name}: other content was read in silence"
    return "another file, as it says"


ENDS = ("refused", "refused at the boundary", "the same", "passed over, by name", "another file, as it says")


def read_all(sound: list[Target], watch: Watch, count: int) -> Counter[str]:
    """Reads so many damaged files, of all kinds in turn; returns how they ended."""
    before = {target.name: target.read().digest for target in sound}
    ended: Counter[str] = Counter()
    watch.seen = []
    for number in range(count):
        target = sound[number % len(sound)]
        ended[read_one(target, number // len(sound), before[target.name])] += 1
    assert watch.seen == []
    watch.seen = None
    assert not Path("mutated-code-was-run").exists()
    wrong = [sentence for sentence in ended if sentence not in ENDS]
    assert not wrong, f"{len(wrong)} of {count}:\n" + "\n".join(wrong[:20])
    return ended


def test_a_hundred_damaged_files_are_refused_or_read_as_they_are(sound, watch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = read_all(sound, watch, SMALL)
    assert ended["refused"] > SMALL // 3


@pytest.mark.slow
def test_ten_thousand_damaged_files_are_refused_or_read_as_they_are(sound, watch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = read_all(sound, watch, LARGE)
    print(dict(ended))
    assert ended["refused"] > LARGE // 3


def test_watch_sees_a_command(watch, tmp_path, monkeypatch):
    import pickle  # noqa: PLC0415

    monkeypatch.chdir(tmp_path)
    watch.seen = []
    pickle.loads(PAYLOAD)
    assert watch.seen and Path("mutated-code-was-run").exists()
