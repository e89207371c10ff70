"""Checkpoints of a run: everything that it needs to go on as if it had never stopped.

The checkpoint of round r is the file `checkpoint-<r>.safetensors`.  It holds the tree of tensors, and names the Parquet
files of the run's tables with their checksums.  A table grows by one file `checkpoint-<r>-<table>.parquet` at a time,
which also takes in smaller files before it: a checkpoint costs what happened since the last one, and there are never
many files.  The Parquet files are written first, and the safetensors file completes the checkpoint.  The last two
checkpoints are kept, so that a damaged one costs a few rounds and not the run.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from idiolect.errors import UserError
from idiolect.records.atomic_files import file_digest
from idiolect.records.tables import completed, write_table
from idiolect.records.tensor_files import DamagedFile, read_metadata, read_tensors, write_tensors

__all__ = [
    "checkpoint_tables",
    "find_checkpoint",
    "flatten",
    "load_checkpoint",
    "remove_checkpoints",
    "save_checkpoint",
    "unflatten",
]

LOGGER = logging.getLogger(__name__)
Tree = dict[str, Any]
Tables = dict[str, pa.Table]
MOST_ROWS = 1 << 14  # a file with fewer rows is merged into a later one
TableFiles = dict[str, dict[str, str]]  # table -> file -> SHA-256


def save_checkpoint(
    folder: Path,
    round: int,
    tree: Mapping[Any, Any],
    tables: Mapping[str, pa.Table],
    after: int | None = None,
) -> Path:
    """Saves the state after `round`, and removes all older checkpoints but one.

    Checkpoints of later rounds are removed too, because the run went on from an earlier round.

    Args:
        folder: the run's partial folder.
        tree: nested dicts of tensors; empty dicts are kept, integer keys come back as strings.
        tables: the rows and rounds, by name: all, or those after the checkpoint of the round `after`.
    """
    layout, leaves = flatten(tree)
    for name, leaf in leaves.items():
        if not isinstance(leaf, torch.Tensor):
            raise TypeError(f"a checkpoint holds tensors; {name} is {type(leaf).__name__}")
    files = {name: {} for name in tables} if after is None else _table_files(folder, after)
    for name, table in tables.items():
        held = files.setdefault(name, {})
        if table.num_rows or not held:
            table = _with_smaller(folder, held, table)
            file = _new_file(folder, round, name)
            held[file] = write_table(Path(folder) / file, table)
    pa.default_memory_pool().release_unused()
    facts = {"round": round, "layout": layout, "tables": files}
    path = _tree_path(folder, round)
    write_tensors(path, leaves, {key: json.dumps(value) for key, value in facts.items()})
    earlier = [other for other in _rounds_in(folder) if other < round]
    _keep_only(folder, {round, max(earlier, default=round)})
    return path


def load_checkpoint(
    folder: Path, say: Callable[[str], None] = LOGGER.warning
) -> tuple[int, Tree, Tables] | None:
    """Returns `(round, tree, tables)` of the newest undamaged checkpoint, or None where there is none.

    Args:
        folder: the run's partial folder, or a finished run.
        say: gets one sentence for each newer checkpoint that was damaged and passed over.

    Raises:
        UserError: there are checkpoints and all are damaged.
    """
    found = find_checkpoint(folder, say)
    if found is None:
        return None
    round, tree = found
    tables = {name: pa.concat_tables(pieces) for name, pieces in checkpoint_tables(folder, round).items()}
    return round, tree, tables


def find_checkpoint(folder: Path, say: Callable[[str], None] = LOGGER.warning) -> tuple[int, Tree] | None:
    """Returns `(round, tree)` as `load_checkpoint` does, without reading the tables into memory."""
    problems: list[str] = []
    for round in sorted(_rounds_in(folder), reverse=True):
        try:
            tree = _read_tree(folder, round)
        except DamagedFile as error:
            problems.append(str(error))
            continue
        for problem in problems:
            say(f"a checkpoint in {folder} is damaged ({problem}); going on from round {round}")
        return round, tree
    if problems:
        raise UserError(
            f"every checkpoint in {folder} is damaged ({'; '.join(problems)}); start the run afresh"
        )
    return None


def checkpoint_tables(folder: Path, round: int) -> dict[str, Iterator[pa.Table]]:
    """Returns the tables of an undamaged checkpoint, each as an iterator over the tables of its files."""
    return {
        name: (pq.read_table(Path(folder) / file) for file in files)
        for name, files in _table_files(folder, round).items()
    }


def remove_checkpoints(folder: Path) -> None:
    """Removes all checkpoints of a run that has no models to keep."""
    _keep_only(folder, set())


def _with_smaller(folder: Path, files: dict[str, str], table: pa.Table) -> pa.Table:
    """Returns the table with the last files that are no larger in front, and removes those files from `files`."""
    while files and table.num_rows < MOST_ROWS:
        last = Path(folder) / list(files)[-1]
        if pq.read_metadata(last).num_rows > table.num_rows:
            break
        if file_digest(last) != files.pop(last.name):
            raise UserError(
                f"{last} does not match its checksum; go on from the last checkpoint with --resume"
            )
        table = pa.concat_tables([completed(pq.read_table(last), table.schema), table])
    return table.combine_chunks()


def _read_tree(folder: Path, round: int) -> Tree:
    leaves, facts = read_tensors(_tree_path(folder, round))
    if json.loads(facts["round"]) != round:
        raise DamagedFile(f"{_tree_path(folder, round).name} holds round {facts['round']}")
    for files in json.loads(facts["tables"]).values():
        for file, digest in files.items():
            path = Path(folder) / file
            if not path.is_file():
                raise DamagedFile(f"{path.name} is missing")
            if file_digest(path) != digest:
                raise DamagedFile(f"{path.name} does not match its checksum")
    return unflatten(json.loads(facts["layout"]), leaves)


def _tree_path(folder: Path, round: int) -> Path:
    return Path(folder) / f"checkpoint-{round}.safetensors"


def _table_files(folder: Path, round: int) -> TableFiles:
    """Returns the files that hold the tables of a checkpoint, in order.

    Raises:
        DamagedFile: the checkpoint cannot be read.
    """
    found: TableFiles = json.loads(read_metadata(_tree_path(folder, round))["tables"])
    return found


def _new_file(folder: Path, round: int, table: str) -> str:
    """Returns an unused file name for rows up to a round, which may be saved again with more rows."""
    stem = f"checkpoint-{round}-{table}"
    taken = {path.stem for path in Path(folder).glob(f"{stem}*.parquet")}
    number = next(n for n in count() if (f"{stem}-{n}" if n else stem) not in taken)
    return f"{stem}-{number}.parquet" if number else f"{stem}.parquet"


def _rounds_in(folder: Path) -> list[int]:
    names = (
        re.fullmatch(r"checkpoint-(\d+)\.safetensors", path.name)
        for path in Path(folder).glob("checkpoint-*")
    )
    return [int(name.group(1)) for name in names if name]


def _keep_only(folder: Path, rounds: set[int]) -> None:
    """Removes all checkpoints except `rounds`, and the table files that only those needed."""
    for round in set(_rounds_in(folder)) - rounds:
        _tree_path(folder, round).unlink(missing_ok=True)
    needed: set[str] = set()
    for round in rounds:
        with suppress(DamagedFile):  # a damaged checkpoint stays as it is and is never loaded
            needed |= {file for files in _table_files(folder, round).values() for file in files}
    for path in Path(folder).glob("checkpoint-*.parquet"):
        if path.name not in needed:
            path.unlink(missing_ok=True)


def flatten(tree: Mapping[Any, Any], prefix: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the layout of a tree of nested dicts, and its leaves in one flat dict.

    Leaves are named by JSON pointers (RFC 6901): `{"server": {"a/b": x}}` holds the leaf `/server/a~1b`.  The layout is
    the same tree with `None` for every leaf; it can be stored as JSON and keeps the empty dicts.  A key that is an
    integer becomes its digits.

    >>> flatten({"server": {0: 1.5}, "private": {}})
    ({'server': {'0': None}, 'private': {}}, {'/server/0': 1.5})
    """
    layout: dict[str, Any] = {}
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        word = str(key)
        if word in layout:
            raise ValueError(f"the tree has two keys that read {word!r} under {prefix or '/'}")
        name = f"{prefix}/{word.replace('~', '~0').replace('/', '~1')}"
        if isinstance(value, Mapping):
            layout[word], below = flatten(value, name)
            leaves.update(below)
        else:
            layout[word] = None
            leaves[name] = value
    return layout, leaves


def unflatten(layout: Mapping[str, Any], leaves: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the tree of a layout and its leaves; all its keys are strings.

    Raises:
        KeyError: the layout names a leaf that is not there.
    """
    tree: dict[str, Any] = {}
    for word, below in layout.items():
        name = f"{prefix}/{word.replace('~', '~0').replace('/', '~1')}"
        tree[word] = leaves[name] if below is None else unflatten(below, leaves, name)
    return tree
