"""Checkpoints: everything a run needs to go on as if it had never stopped.

A checkpoint of round r is `checkpoint-<r>.safetensors` (the tree, and checksums of all) with
`checkpoint-<r>-<table>.parquet` beside it.  The tables are written first, so the safetensors file is what
makes a checkpoint whole.  The last two are kept: a damaged newest one costs a few rounds, not the run.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from idiolect.errors import UserError
from idiolect.records.digest import file_digest
from idiolect.records.layout import flatten, unflatten
from idiolect.records.tables import write_table
from idiolect.records.tensors import DamagedFile, read_tensors, write_tensors

__all__ = ["load_checkpoint", "save_checkpoint"]

LOGGER = logging.getLogger(__name__)

Tree = dict[str, Any]
Tables = dict[str, pa.Table]


def save_checkpoint(
    folder: Path, round: int, tree: Mapping[Any, Any], tables: Mapping[str, pa.Table]
) -> Path:
    """Saves the state after `round`, and removes all older checkpoints but one.

    Checkpoints of later rounds are removed too: they belong to a past that this run has left.

    Args:
        folder: the run's partial folder.
        tree: nested dicts of tensors; empty dicts are kept, integer keys come back as strings.
        tables: the rows and rounds so far, by name.
    """
    layout, leaves = flatten(tree)
    for name, leaf in leaves.items():
        if not isinstance(leaf, torch.Tensor):
            raise TypeError(f"a checkpoint holds tensors; {name} is {type(leaf).__name__}")
    digests = {name: write_table(_table_path(folder, round, name), table) for name, table in tables.items()}
    facts = {"round": round, "layout": layout, "tables": digests}
    path = _tree_path(folder, round)
    write_tensors(path, leaves, {key: json.dumps(value) for key, value in facts.items()})
    earlier = [other for other in _rounds(folder) if other < round]
    _remove(folder, [other for other in _rounds(folder) if other not in {round, max(earlier, default=round)}])
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
    problems: list[str] = []
    for round in sorted(_rounds(folder), reverse=True):
        try:
            tree, tables = _read(folder, round)
        except DamagedFile as error:
            problems.append(str(error))
            continue
        for problem in problems:
            say(f"a checkpoint in {folder} is damaged ({problem}); going on from round {round}")
        return round, tree, tables
    if problems:
        raise UserError(
            f"every checkpoint in {folder} is damaged ({'; '.join(problems)}); start the run afresh"
        )
    return None


def _read(folder: Path, round: int) -> tuple[Tree, Tables]:
    leaves, facts = read_tensors(_tree_path(folder, round))
    if json.loads(facts["round"]) != round:
        raise DamagedFile(f"{_tree_path(folder, round).name} holds round {facts['round']}")
    tables: Tables = {}
    for name, digest in json.loads(facts["tables"]).items():
        path = _table_path(folder, round, name)
        if not path.is_file():
            raise DamagedFile(f"{path.name} is missing")
        if file_digest(path) != digest:
            raise DamagedFile(f"{path.name} does not match its checksum")
        tables[name] = pq.read_table(path)
    return unflatten(json.loads(facts["layout"]), leaves), tables


def _tree_path(folder: Path, round: int) -> Path:
    return Path(folder) / f"checkpoint-{round}.safetensors"


def _table_path(folder: Path, round: int, name: str) -> Path:
    return Path(folder) / f"checkpoint-{round}-{name}.parquet"


def _rounds(folder: Path) -> list[int]:
    names = (
        re.fullmatch(r"checkpoint-(\d+)\.safetensors", path.name)
        for path in Path(folder).glob("checkpoint-*")
    )
    return [int(name.group(1)) for name in names if name]


def _remove(folder: Path, rounds: list[int]) -> None:
    for round in rounds:
        _tree_path(folder, round).unlink(missing_ok=True)
        for path in Path(folder).glob(f"checkpoint-{round}-*.parquet"):
            path.unlink(missing_ok=True)
