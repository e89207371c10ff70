"""Changes the papers' files one leaf at a time, in a copy of the package, and says whether the tests notice.

    python scripts/mutate_scenes.py [--seed 0] [--count 10]

Draws ``count`` settings of scenes (options and grids among them), as many readings of tables and figures, and as many
published numbers.  The exit status is 1 where a change was missed.  Prose for readers is left alone.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "idiolect"
TESTS = ("tests/reproduction/published", "tests/reproduction/test_papers.py")

# Keys whose values are prose or names.
PROSE = {"caption", "notes", "note", "what", "about", "title", "citation", "label", "id"}
SCENE_PROSE = {"name", "line", "because", "differs", "warning", "cannot"}
NUMBERS = {"values", "spreads"}
MISSING = "-"  # where a table prints no number


class Leaf(NamedTuple):
    """A single value in a TOML file.

    Args:
        file: its path inside the package.
        path: keys and places from the top of the document.
    """

    file: str
    path: tuple[str | int, ...]
    value: Any

    @property
    def key(self) -> str:
        """Returns the last key of the path."""
        return next(step for step in reversed(self.path) if isinstance(step, str))

    def __str__(self) -> str:
        return f"{self.file}: {'.'.join(map(str, self.path))}"


def leaves(file: str, document: Any, path: tuple[str | int, ...] = ()) -> Iterator[Leaf]:
    """Yields every value that is neither a table nor a list."""
    if isinstance(document, dict | list):
        steps = document.items() if isinstance(document, dict) else enumerate(document)
        for step, inner in steps:
            yield from leaves(file, inner, (*path, step))
    else:
        yield Leaf(file, path, document)


def kind_of(leaf: Leaf) -> str:
    """Returns ``setting``, ``reading``, ``number``, or nothing for prose and names."""
    scenes = "scenarios" in leaf.file
    prose = SCENE_PROSE if scenes else PROSE
    if leaf.path == ("paper",) or any(step in prose for step in leaf.path):
        return ""
    if scenes or leaf.file.endswith("grids.toml"):
        return "setting"
    return "number" if leaf.key in NUMBERS else "reading"


def changed(leaf: Leaf, alike: list[Any], draw: random.Random) -> Any:
    """Returns another value: a larger or smaller number, or another word, known under the same key or invented."""
    value = leaf.value
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return draw.choice([value + 1, value * 2 or 10.0, value / 10 or 0.1])
    if isinstance(value, int):
        return draw.choice([value + 1, value * 2 or 10])
    if value == MISSING:
        return 1.0
    others = sorted({other for other in alike if isinstance(other, str) and other not in (value, MISSING)})
    return draw.choice([*others, f"{value}x"])


def write(document: Any) -> str:
    """Returns the document as TOML, with a line for every key at the top."""
    return "".join(f"{json.dumps(key)} = {inline(value)}\n" for key, value in document.items())


def inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {inline(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(inner) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def replaced(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """Returns a copy of the document with one other value."""
    if not path:
        return value
    other = document.copy()
    other[path[0]] = replaced(document[path[0]], path[1:], value)
    return other


class Copy:
    """A copy of the package, from which everything is imported; each run of the tests is a process forked from here."""

    def __init__(self, folder: Path) -> None:
        shutil.copytree(PACKAGE, folder / "idiolect", ignore=shutil.ignore_patterns("__pycache__"))
        sys.path.insert(0, str(folder))
        names = ("scenarios.catalogue", "papers.catalogue")
        scenes, reported = (importlib.import_module(f"idiolect.reproduction.{name}") for name in names)
        assert Path(scenes.__file__).is_relative_to(folder), scenes.__file__
        self.folder, self.report = folder, folder / "report.txt"
        self._scenes = scenes.read_scenarios
        self._reported = (reported.read_paper, reported.read_tables, reported.read_figures)

    def read(self, file: str, text: str) -> Any:
        """Returns what the package makes of a file's text."""
        if "scenarios" in file:
            return self._scenes(text)
        if file.endswith("grids.toml"):
            return tomllib.loads(text)
        return [read(text) for read in self._reported]

    def test(self) -> tuple[bool, str]:
        """Returns whether all tests pass, and the first that fails."""
        child = multiprocessing.get_context("fork").Process(target=self._run_tests)
        child.start()
        child.join()
        text = self.report.read_text("utf-8")
        if child.exitcode not in (0, 1):
            raise SystemExit(f"the tests could not be run:\n{text}")
        failed = [
            row.split()[1].rpartition("::")[2] for row in text.splitlines() if row.startswith("FAILED ")
        ]
        return child.exitcode == 0, "".join(failed)

    def _run_tests(self) -> None:
        with self.report.open("w", encoding="utf-8") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(ROOT)
        sys.exit(int(pytest.main(["-q", "-x", "--tb=no", "-p", "no:cacheprovider", *TESTS])))


def verdict(leaf: Leaf, value: Any, document: Any, copy: Copy) -> tuple[str, str]:
    """Returns ``caught``, ``refused`` on loading, ``missed`` or ``no effect``, and what noticed the change."""
    before, after = write(document), write(replaced(document, leaf.path, value))
    try:
        if copy.read(leaf.file, after) == copy.read(leaf.file, before):
            return "no effect", ""
    except (ValueError, KeyError, TypeError) as problem:
        return "refused", str(problem)
    place = copy.folder / "idiolect" / leaf.file
    original = place.read_text("utf-8")
    place.write_text(after, "utf-8")
    try:
        passed, failed = copy.test()
    finally:
        place.write_text(original, "utf-8")
    return ("missed", "") if passed else ("caught", failed)


def main(seed: int, count: int) -> int:
    folders = ("reproduction/scenarios", "reproduction/papers", "experiments/sweep")
    paths = [path for name in folders for path in sorted((PACKAGE / name).glob("*.toml"))]
    documents = {str(path.relative_to(PACKAGE)): tomllib.loads(path.read_text("utf-8")) for path in paths}
    found = [leaf for file, document in documents.items() for leaf in leaves(file, document)]
    draw, verdicts = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        copy = Copy(Path(name).resolve())
        passed, failed = copy.test()
        if not passed:
            raise SystemExit(f"the tests fail without any change: {failed}")
        print(f"seed {seed}")
        for kind in ("setting", "reading", "number"):
            known = [leaf for leaf in found if kind_of(leaf) == kind]
            tried = 0
            for leaf in draw.sample(known, len(known)):
                if tried == count:
                    break
                value = changed(leaf, [other.value for other in known if other.key == leaf.key], draw)
                word, how = verdict(leaf, value, documents[leaf.file], copy)
                tried += word != "no effect"
                verdicts[word] += 1
                print(f"{word:9} {kind:7} {leaf}: {leaf.value!r} -> {value!r}  {how}", flush=True)
    print(", ".join(f"{n} {word}" for word, n in sorted(verdicts.items())))
    return 1 if verdicts["missed"] else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10, help="of each kind")
    asked = parser.parse_args()
    sys.exit(main(asked.seed, asked.count))
