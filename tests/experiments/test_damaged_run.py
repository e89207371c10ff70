"""Damage to any one file of an interrupted run costs rounds at most; the run ends as if nothing had been."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from idiolect.errors import UserError
from idiolect.experiments import Experiment, run
from idiolect.records import find_checkpoint
from idiolect.records.tensor_files import read_metadata

from .conftest import Listener
from .test_private_state import PERSFL, content

OPTIONS = {"engine": "loop", "device": "cpu", "checkpoint_every": 1, "store": "disk", "store_cache": 0}


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def emptied(content: bytes) -> bytes:
    return b""


def flipped(content: bytes) -> bytes:
    """Flips a bit in the middle."""
    whole = bytearray(content)
    whole[len(whole) // 2 : len(whole) // 2 + 1] = (value ^ 0x10 for value in whole[len(whole) // 2 :][:1])
    return bytes(whole)


def flipped_often(content: bytes) -> bytes:
    return bytes(value ^ 0x10 if place % 50 == 25 else value for place, value in enumerate(content))


DAMAGES: dict[str, Callable[[bytes], bytes] | None] = {
    "truncated": truncated,
    "flipped": flipped,
    "deleted": None,
    "emptied": emptied,
    "flipped often": flipped_often,
}


@dataclass
class Stopped:
    """A run that was stopped in its fifth round of six, with checkpoints of rounds 3 and 4, and what it should give."""

    asked: Experiment
    folder: Path
    expected: tuple[Any, ...]
    rest: Path

    @property
    def files(self) -> list[Path]:
        return sorted(path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file())

    def resumed(self, *damaged: tuple[Path, Callable[[bytes], bytes] | None]) -> tuple[bool, list[str]]:
        """Takes the run up with these files damaged; says whether it ended as it should, and what was said."""
        out = self.rest / "damaged"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.folder.parent, out)
        for file, damage in damaged:
            path = out / self.folder.name / file
            if damage is None:
                path.unlink()
            else:
                path.write_bytes(damage(path.read_bytes()))
        listener = Listener()
        done = run(self.asked, out=out, resume=True, watcher=listener, **OPTIONS)
        return content(self.asked, done, out) == self.expected, listener.heard


def stopped_run(method: str, tiny: Experiment, place: Path) -> Stopped:
    asked = replace(tiny, method=method, participation_rate=0.5, rounds=6, evaluate_every=2)
    done = run(asked, out=place / "whole", **OPTIONS)
    expected = content(asked, done, place / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(asked, out=place / "stopped", watcher=Listener(5), **OPTIONS)
    (folder,) = (place / "stopped").iterdir()
    return Stopped(asked, folder, expected, place)


def newest_generation(stopped: Stopped) -> set[Path]:
    """The files of the newest checkpoint."""
    found = find_checkpoint(stopped.folder)
    assert found is not None and found.round == 4
    tables = json.loads(read_metadata(stopped.folder / f"{found.name}.safetensors")["tables"])
    private = Path("private") / "ab"[int(found.tree["private"]["generation"])]
    own = {Path(f"{found.name}.safetensors"), private / "rows", private / "index"}
    return own | {Path(file) for files in tables.values() for file in files}


def assert_survives(stopped: Stopped, file: Path, damage: str, newest: set[Path]) -> None:
    """What the newest checkpoint needs is named, and so is the older one, from which the run goes on."""
    same, heard = stopped.resumed((file, DAMAGES[damage]))
    assert same, (file, damage)
    sentences = [one for one in heard if "is damaged" in one]
    in_free_slot = (
        file.name == "rows" and damage in ("truncated", "flipped", "flipped often") and not sentences
    )
    is_gone = file.suffix == ".safetensors" and damage == "deleted"  # then there is no such checkpoint
    if file in newest and not in_free_slot and not is_gone:
        (sentence,) = sentences
        assert file.name in sentence and "going on from round 3, checkpoint-3" in sentence
    else:
        assert not sentences


def test_a_damaged_file_costs_rounds_and_not_the_run(tiny: Experiment, tmp_path: Path) -> None:
    stopped = stopped_run("fedper", tiny, tmp_path)
    newest = newest_generation(stopped)
    assert len(newest) == 3 + 2 and newest < set(stopped.files)
    for file, damage in zip(stopped.files, cycle(DAMAGES), strict=False):
        assert_survives(stopped, file, damage, newest)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedper", PERSFL])
def test_every_damage_to_every_file_costs_rounds_and_not_the_run(
    method: str, tiny: Experiment, tmp_path: Path
) -> None:
    stopped = stopped_run(method, tiny, tmp_path)
    newest = newest_generation(stopped)
    for file in stopped.files:
        for damage in DAMAGES:
            assert_survives(stopped, file, damage, newest)


def test_damage_to_both_checkpoints_is_refused_by_name(tiny: Experiment, tmp_path: Path) -> None:
    stopped = stopped_run("fedper", tiny, tmp_path)
    with pytest.raises(UserError) as refused:
        stopped.resumed((Path("private/a/rows"), emptied), (Path("private/b/index"), None))
    for words in (
        "every checkpoint in",
        "a/rows is damaged",
        "b/index cannot be read",
        "start the run afresh",
    ):
        assert words in str(refused.value)
