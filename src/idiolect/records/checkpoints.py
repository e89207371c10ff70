"""Checkpoints of a run: everything that it needs to go on as if it had never stopped.

The checkpoint of round r is the file `checkpoint-<r>.safetensors`; a second one of the same round, after the stages of
a run's end, is `checkpoint-<r>-1.safetensors`.  It holds the tree of tensors, and names the Parquet files of the run's
tables with their checksums.  The Parquet files are written first, and the safetensors file completes the checkpoint.

The last two checkpoints are kept, and they share no file, so that damage to one file costs some rounds and not the run.
A new checkpoint takes over the files of the older one, which then goes, and adds the rows since then: those that the
newer one has beyond it, and the new ones.  A file also takes in smaller files before it.  So a checkpoint writes
what happened since the last but one, and there are never many files.  What was written is read back and compared.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, count, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from idiolect.errors import UserError
from idiolect.records.atomic_files import file_digest
from idiolect.records.tables import completed, write_table
from idiolect.records.tensor_files import DamagedFile, read_metadata, read_tensors, write_tensors

__all__ = [
    "CheckpointName",
    "SavedCheckpoint",
    "checkpoint_tables",
    "drop_older_checkpoint",
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


class CheckpointName(NamedTuple):
    """Which checkpoint of a run; later ones compare greater.

    Args:
        repeat: 0 for the first checkpoint of a round.
    """

    round: int
    repeat: int = 0

    def __str__(self) -> str:
        return f"checkpoint-{self.round}" + (f"-{self.repeat}" if self.repeat else "")


class SavedCheckpoint(NamedTuple):
    """A checkpoint that was read; its tables are read by `checkpoint_tables`.

    Args:
        bound: what was saved as such; empty in those of older versions.
    """

    round: int
    tree: Tree
    name: CheckpointName
    bound: dict[str, Any]


def save_checkpoint(
    folder: Path,
    round: int,
    tree: Mapping[Any, Any],
    tables: Mapping[str, pa.Table],
    after: CheckpointName | None = None,
    bound: Mapping[str, Any] | None = None,
) -> CheckpointName:
    """Saves the state after `round`, and removes all checkpoints but this one and the one before it.

    Checkpoints of later rounds are removed too, because the run went on from an earlier round.

    Args:
        folder: the run's partial folder.
        tree: nested dicts of tensors; empty dicts are kept, integer keys come back as strings.
        tables: the rows and rounds, by name: all, or those after the checkpoint `after`.
        bound: what the run must find again when it goes on, as plain values.

    Raises:
        UserError: the checkpoint before is damaged, or what was written reads back otherwise.
    """
    layout, leaves = flatten(tree)
    for key, leaf in leaves.items():
        if not isinstance(leaf, torch.Tensor):
            raise TypeError(f"a checkpoint holds tensors; {key} is {type(leaf).__name__}")
    known = _names_in(folder)
    name = CheckpointName(
        round, max((other.repeat + 1 for other in known if other.round == round), default=0)
    )
    before = after or max((other for other in known if other < name), default=None)
    try:
        files = _written_tables(folder, name, tables, after, [other for other in known if other != before])
        facts = {"round": round, "layout": layout, "tables": files, "bound": dict(bound or {})}
        write_tensors(_tree_path(folder, name), leaves, {k: json.dumps(value) for k, value in facts.items()})
        read_tensors(_tree_path(folder, name))
    except DamagedFile as error:
        raise UserError(
            f"{folder}: {error} as its checkpoint was written; go on from the last sound one with --resume"
        ) from error
    pa.default_memory_pool().release_unused()
    _keep_only(folder, {name} if before is None else {name, before})
    return name


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
    tables = {
        table: pa.concat_tables(pieces) for table, pieces in checkpoint_tables(folder, found.name).items()
    }
    return found.round, found.tree, tables


def find_checkpoint(
    folder: Path,
    say: Callable[[str], None] = LOGGER.warning,
    check: Callable[[Tree], None] = lambda tree: None,
) -> SavedCheckpoint | None:
    """Returns the newest undamaged checkpoint as `load_checkpoint` does, without reading the tables into memory.

    Args:
        check: looks at what a checkpoint needs of other files, and raises `UserError` where that is damaged.
    """
    problems: list[str] = []
    for name in sorted(_names_in(folder), reverse=True):
        try:
            tree, remembered = _read_tree(folder, name)
            check(tree)
        except (DamagedFile, UserError) as error:
            problems.append(f"{name}: {error}")
            continue
        for problem in problems:
            say(f"a checkpoint in {folder} is damaged ({problem}); going on from round {name.round}, {name}")
        return SavedCheckpoint(name.round, tree, name, remembered)
    if problems:
        raise UserError(
            f"every checkpoint in {folder} is damaged ({'; '.join(problems)}); start the run afresh"
        )
    return None


def checkpoint_tables(folder: Path, name: CheckpointName) -> dict[str, Iterator[pa.Table]]:
    """Returns the tables of an undamaged checkpoint, each as an iterator over the tables of its files."""
    return {
        table: (pq.read_table(Path(folder) / file) for file in files)
        for table, files in _table_files(folder, name).items()
    }


def drop_older_checkpoint(folder: Path) -> None:
    """Removes all checkpoints of a finished run but the last, from which its models are read."""
    _keep_only(folder, {max(_names_in(folder))})


def remove_checkpoints(folder: Path) -> None:
    """Removes all checkpoints of a run that has no models to keep."""
    _keep_only(folder, set())


def _written_tables(
    folder: Path,
    name: CheckpointName,
    tables: Mapping[str, pa.Table],
    after: CheckpointName | None,
    outgoing: list[CheckpointName],
) -> TableFiles:
    """Writes the tables of a new checkpoint; returns their files, none of which the checkpoint `after` needs.

    Args:
        outgoing: checkpoints that go when the new one is complete, whose files it may take over.
    """
    if after is None:
        return {table: _grown(folder, name, table, {}, [rows]) for table, rows in tables.items()}
    there = _table_files(folder, after)
    older = _newest_readable(folder, [other for other in outgoing if other < after])
    found: TableFiles = {}
    for table in {**there, **tables}:
        held = _taken_over(folder, older.get(table, {}), there.get(table, {}))
        rows_there = _rows_from(folder, there.get(table, {}), _rows_in(folder, held))
        new = [tables[table]] if table in tables else []
        found[table] = _grown(folder, name, table, held, chain(rows_there, new))
    return found


def _newest_readable(folder: Path, names: list[CheckpointName]) -> TableFiles:
    for name in sorted(names, reverse=True):
        try:
            return _table_files(folder, name)
        except DamagedFile:
            continue
    return {}


def _taken_over(folder: Path, files: dict[str, str], needed: dict[str, str]) -> dict[str, str]:
    """Returns the first of the files: up to one that is damaged, or that another checkpoint needs."""
    sound = takewhile(lambda file: file not in needed and _is_sound(folder, file, files[file]), files)
    return {file: files[file] for file in sound}


def _is_sound(folder: Path, file: str, digest: str) -> bool:
    path = Path(folder) / file
    return path.is_file() and file_digest(path) == digest


def _rows_in(folder: Path, files: dict[str, str]) -> int:
    return sum(pq.read_metadata(Path(folder) / file).num_rows for file in files)


def _rows_from(folder: Path, files: dict[str, str], start: int) -> Iterator[pa.Table]:
    """Yields the rows of a table from a place on, and reads only the files that hold them.

    Raises:
        DamagedFile: one of the files does not match its checksum.
    """
    for file, digest in files.items():
        path = Path(folder) / file
        rows = pq.read_metadata(path).num_rows if path.is_file() else 0
        if start < rows or not rows:
            if not _is_sound(folder, file, digest):
                raise DamagedFile(f"{file} does not match its checksum")
            yield pq.read_table(path).slice(max(start, 0))
        start -= rows


def _grown(
    folder: Path, name: CheckpointName, table: str, held: dict[str, str], pieces: Iterable[pa.Table]
) -> dict[str, str]:
    """Returns the files of a table after pieces were added to it; small pieces go to one file."""
    waiting: list[pa.Table] = []
    for piece in pieces:
        waiting = [*(completed(one, piece.schema) for one in waiting), piece]
        if sum(one.num_rows for one in waiting) >= MOST_ROWS:
            _add_file(folder, name, table, held, pa.concat_tables(waiting))
            waiting = []
    if waiting and (not held or any(one.num_rows for one in waiting)):
        _add_file(folder, name, table, held, pa.concat_tables(waiting))
    return held


def _add_file(folder: Path, name: CheckpointName, table: str, held: dict[str, str], rows: pa.Table) -> None:
    """Writes rows to a new file, which takes in the last files that are no larger; those leave `held`."""
    while held and rows.num_rows < MOST_ROWS:
        last = Path(folder) / list(held)[-1]
        if pq.read_metadata(last).num_rows > rows.num_rows:
            break
        del held[last.name]
        rows = pa.concat_tables([completed(pq.read_table(last), rows.schema), rows])
    file, rows = _new_file(folder, name, table), rows.combine_chunks()
    held[file] = write_table(Path(folder) / file, rows)
    if not _same_rows(pq.read_table(Path(folder) / file), rows):
        raise DamagedFile(f"{file} reads back otherwise than it was written")


def _same_rows(found: pa.Table, expected: pa.Table) -> bool:
    """Whether two tables hold the same; a number that is not defined (NaN) is the same as another."""
    return bool(found.schema.equals(expected.schema)) and all(
        one.equals(other)
        or (
            pa.types.is_floating(one.type)
            and np.array_equal(one.to_numpy(), other.to_numpy(), equal_nan=True)
        )
        for one, other in zip(found.columns, expected.columns, strict=True)
    )


def _read_tree(folder: Path, name: CheckpointName) -> tuple[Tree, dict[str, Any]]:
    path = _tree_path(folder, name)
    leaves, facts = read_tensors(path)
    if json.loads(facts["round"]) != name.round:
        raise DamagedFile(f"{path.name} holds round {facts['round']}")
    for files in json.loads(facts["tables"]).values():
        for file, digest in files.items():
            if not (Path(folder) / file).is_file():
                raise DamagedFile(f"{file} is missing")
            if not _is_sound(folder, file, digest):
                raise DamagedFile(f"{file} does not match its checksum")
    return unflatten(json.loads(facts["layout"]), leaves), json.loads(facts.get("bound", "{}"))


def _tree_path(folder: Path, name: CheckpointName) -> Path:
    return Path(folder) / f"{name}.safetensors"


def _table_files(folder: Path, name: CheckpointName) -> TableFiles:
    """Returns the files that hold the tables of a checkpoint, in order.

    Raises:
        DamagedFile: the checkpoint cannot be read.
    """
    found: TableFiles = json.loads(read_metadata(_tree_path(folder, name))["tables"])
    return found


def _new_file(folder: Path, name: CheckpointName, table: str) -> str:
    """Returns an unused file name for rows of a table."""
    stem = f"{name}-{table}"
    taken = {path.stem for path in Path(folder).glob(f"{stem}*.parquet")}
    number = next(n for n in count() if (f"{stem}-{n}" if n else stem) not in taken)
    return f"{stem}-{number}.parquet" if number else f"{stem}.parquet"


def _names_in(folder: Path) -> list[CheckpointName]:
    names = (
        re.fullmatch(r"checkpoint-(\d+)(?:-(\d+))?\.safetensors", path.name)
        for path in Path(folder).glob("checkpoint-*.safetensors")
    )
    return [CheckpointName(int(name[1]), int(name[2] or 0)) for name in names if name]


def _keep_only(folder: Path, names: set[CheckpointName]) -> None:
    """Removes all checkpoints except `names`, and the table files that only those needed."""
    for name in set(_names_in(folder)) - names:
        _tree_path(folder, name).unlink(missing_ok=True)
    needed: set[str] = set()
    for name in names:
        try:
            needed |= {file for files in _table_files(folder, name).values() for file in files}
        except DamagedFile:  # it stays as it is and is never loaded
            continue
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
