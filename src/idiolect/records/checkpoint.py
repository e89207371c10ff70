"""Checkpoints: everything a run needs to go on as if it had never stopped.

A checkpoint of round r is `checkpoint-<r>.safetensors`: the tree, and the list of Parquet files with checksums that
its tables consist of.  A table grows by a file `checkpoint-<r>-<table>.parquet` at a time, which takes in smaller ones
before it, so that a checkpoint costs what happened since the last one and there are never many files.  Those files
are written first: the safetensors file is what makes a checkpoint whole.  The last two are kept: a damaged newest one
costs a few rounds, not the run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from idiolect.errors import UserError
from idiolect.records.checkpoint_files import files_of, keep_only, new_file, rounds_in, tree_path
from idiolect.records.digest import file_digest
from idiolect.records.layout import flatten, unflatten
from idiolect.records.tables import write_table
from idiolect.records.tensors import DamagedFile, read_tensors, write_tensors

__all__ = ["checkpoint_tables", "find_checkpoint", "load_checkpoint", "save_checkpoint"]

LOGGER = logging.getLogger(__name__)

Tree = dict[str, Any]
Tables = dict[str, pa.Table]

MOST_ROWS = 1 << 14  # of a file that is still taken in by a later one


def save_checkpoint(
    folder: Path,
    round: int,
    tree: Mapping[Any, Any],
    tables: Mapping[str, pa.Table],
    after: int | None = None,
) -> Path:
    """Saves the state after `round`, and removes all older checkpoints but one.

    Checkpoints of later rounds are removed too: they belong to a past that this run has left.

    Args:
        folder: the run's partial folder.
        tree: nested dicts of tensors; empty dicts are kept, integer keys come back as strings.
        tables: the rows and rounds, by name: all, or those after the checkpoint of the round `after`.
    """
    layout, leaves = flatten(tree)
    for name, leaf in leaves.items():
        if not isinstance(leaf, torch.Tensor):
            raise TypeError(f"a checkpoint holds tensors; {name} is {type(leaf).__name__}")
    files = {name: {} for name in tables} if after is None else files_of(folder, after)
    for name, table in tables.items():
        if table.num_rows or not files[name]:
            table = _with_smaller(folder, files[name], table)
            file = new_file(folder, round, name)
            files[name][file] = write_table(Path(folder) / file, table)
    pa.default_memory_pool().release_unused()
    facts = {"round": round, "layout": layout, "tables": files}
    path = tree_path(folder, round)
    write_tensors(path, leaves, {key: json.dumps(value) for key, value in facts.items()})
    earlier = [other for other in rounds_in(folder) if other < round]
    keep_only(folder, {round, max(earlier, default=round)})
    return path


def load_checkpoint(
    folder: Path, say: Callable[[str], None] = LOGGER.warning
) -> tuple[int, Tree, Tables] | None:
    """Gives `(round, tree, tables)` of the newest sound checkpoint, or None where there is none.

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
    """As `load_checkpoint`, without reading the tables into memory."""
    problems: list[str] = []
    for round in sorted(rounds_in(folder), reverse=True):
        try:
            tree = _read(folder, round)
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
    """The tables of a sound checkpoint, each in the pieces that it grew by."""
    return {
        name: (pq.read_table(Path(folder) / file) for file in files)
        for name, files in files_of(folder, round).items()
    }


def _with_smaller(folder: Path, files: dict[str, str], table: pa.Table) -> pa.Table:
    """The table behind those of the last files that are no larger, which leave the list."""
    while files and table.num_rows < MOST_ROWS:
        last = Path(folder) / list(files)[-1]
        if pq.read_metadata(last).num_rows > table.num_rows:
            break
        if file_digest(last) != files.pop(last.name):
            raise UserError(
                f"{last} does not match its checksum; go on from the last checkpoint with --resume"
            )
        table = pa.concat_tables([pq.read_table(last), table])
    return table.combine_chunks()


def _read(folder: Path, round: int) -> Tree:
    leaves, facts = read_tensors(tree_path(folder, round))
    if json.loads(facts["round"]) != round:
        raise DamagedFile(f"{tree_path(folder, round).name} holds round {facts['round']}")
    for files in json.loads(facts["tables"]).values():
        for file, digest in files.items():
            path = Path(folder) / file
            if not path.is_file():
                raise DamagedFile(f"{path.name} is missing")
            if file_digest(path) != digest:
                raise DamagedFile(f"{path.name} does not match its checksum")
    return unflatten(json.loads(facts["layout"]), leaves)
