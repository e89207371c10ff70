"""The files of checkpoints: what they are called, who needs them, and which may go."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import count
from pathlib import Path

from idiolect.records.tensors import DamagedFile, read_metadata

__all__ = ["Files", "files_of", "keep_only", "new_file", "rounds_in", "tree_path"]

Files = dict[str, dict[str, str]]  # table -> file -> SHA-256


def tree_path(folder: Path, round: int) -> Path:
    return Path(folder) / f"checkpoint-{round}.safetensors"


def files_of(folder: Path, round: int) -> Files:
    """The files that the tables of a checkpoint consist of, in order.

    Raises:
        DamagedFile: the checkpoint cannot be read.
    """
    found: Files = json.loads(read_metadata(tree_path(folder, round))["tables"])
    return found


def new_file(folder: Path, round: int, table: str) -> str:
    """A name for rows up to a round that no file has: a round may be saved again with more."""
    stem = f"checkpoint-{round}-{table}"
    taken = {path.stem for path in Path(folder).glob(f"{stem}*.parquet")}
    number = next(n for n in count() if (f"{stem}-{n}" if n else stem) not in taken)
    return f"{stem}-{number}.parquet" if number else f"{stem}.parquet"


def rounds_in(folder: Path) -> list[int]:
    names = (
        re.fullmatch(r"checkpoint-(\d+)\.safetensors", path.name)
        for path in Path(folder).glob("checkpoint-*")
    )
    return [int(name.group(1)) for name in names if name]


def keep_only(folder: Path, rounds: set[int]) -> None:
    """Removes every checkpoint but these, and the files that only others need."""
    for round in set(rounds_in(folder)) - rounds:
        tree_path(folder, round).unlink(missing_ok=True)
    needed: set[str] = set()
    for round in rounds:
        with suppress(DamagedFile):  # a damaged one is kept as it is and never gone back to
            needed |= {file for files in files_of(folder, round).values() for file in files}
    for path in Path(folder).glob("checkpoint-*.parquet"):
        if path.name not in needed:
            path.unlink(missing_ok=True)
