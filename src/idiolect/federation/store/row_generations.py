"""Private state on disk in two generations that share no file, one for each of the two checkpoints that are kept.

Checkpoints take turns: one writes its rows to the folder ``private/a``, the next to ``private/b``.  Between two
checkpoints rows go to the folder of the checkpoint to come.  That folder lacks what changed before the last checkpoint,
which was written to the other one; a checkpoint brings it up to date.  So a row that changes is written twice, once to
each folder, and a damaged file takes one checkpoint along and not both.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from idiolect.errors import UserError
from idiolect.federation.store.row_file import NOWHERE, IndexMark, RowFile
from idiolect.federation.store.row_format import PackedRows, RowFormat

__all__ = [
    "KEPT_ROWS",
    "PRIVATE_ROWS",
    "GenerationMark",
    "RowGenerations",
    "drop_older_generation",
    "space_taken",
]

PRIVATE_ROWS = "private"  # the subfolder of a run with private state
KEPT_ROWS = "kept"  # the subfolder with what the server keeps of each client
GENERATIONS = (
    "a",
    "b",
    "",
)  # their folders in it; older versions had one for all checkpoints, which is only read
SHARED = 2


class GenerationMark(NamedTuple):
    """What a checkpoint remembers of the rows.

    Args:
        generation: which folder holds them, by its place in ``GENERATIONS``.
        entries, digest: the mark of its index.
        other_entries, other_digest: the mark of the other folder's index, for the checkpoint before.
    """

    generation: int
    entries: int
    digest: int
    other_entries: int = 0
    other_digest: int = 0

    @classmethod
    def of(cls, saved: Mapping[str, int]) -> GenerationMark | None:
        """Returns the mark from its fields by name, also from those of an older version; None from any other."""
        if set(saved) == {"entries", "digest", "before"}:
            return cls(SHARED, saved["entries"], saved["digest"])
        return cls(**saved) if set(saved) == set(cls._fields) else None


class RowGenerations:
    """Reads the current rows, and writes them to the generation of the next checkpoint.

    Args:
        folder: of the run.
        writable: whether rows are ever written; those of a finished run are only read.
        name: of the subfolder with the rows.
    """

    def __init__(
        self, folder: Path, form: RowFormat, population: int, writable: bool = True, name: str = PRIVATE_ROWS
    ) -> None:
        self._files = [
            RowFile(Path(folder) / name / each, form, population, writable) for each in GENERATIONS
        ]
        self._form, self._writable = form, writable
        self._mark = IndexMark()
        self._new: set[int] = set()  # clients whose row changed since the last checkpoint
        self._behind: set[int] = set()  # clients whose row only the last checkpoint's generation has
        self._turn(1)

    def __contains__(self, client: int) -> bool:
        return client in self._new or client in self._files[self._last]

    def clients(self) -> list[int]:
        """Returns the clients that have a row, in order."""
        held = self._files[self._last].index.slot != NOWHERE
        held[list(self._new)] = True
        return [int(client) for client in np.flatnonzero(held)]

    def read(self, client: int, row: Tensor) -> int:
        """Reads a row into host memory, and returns the number of its layout."""
        new, following, last = (
            self._places
        )  # at once, because a thread may read while a checkpoint is completed
        return (following if client in new else last).read(client, row)

    def read_all(self, clients: Sequence[int]) -> PackedRows:
        rows = torch.zeros(len(clients), self._form.row_bytes, dtype=torch.uint8)
        return PackedRows(rows, [self.read(client, row) for client, row in zip(clients, rows, strict=True)])

    def write(self, client: int, row: Tensor, layout: int) -> None:
        """Writes a row of host memory."""
        self._files[self._next].write(client, row, layout)
        self._new.add(client)

    def mark(self) -> GenerationMark:
        """Completes the next generation on disk before it returns the mark for the next checkpoint."""
        _, following, last = self._places
        row = torch.empty(self._form.row_bytes, dtype=torch.uint8)
        for client in sorted(self._behind - self._new):
            layout = last.read(client, row)
            following.write(client, row[: self._form.size(layout)], layout)
        other, self._mark = self._mark, following.mark()
        if self._last == SHARED:
            other = IndexMark()
        return GenerationMark(self._next, *self._mark, *other)

    def release(self) -> None:
        """Announces that the checkpoint with the last mark is on disk."""
        self._files[self._next].index.release()
        self._behind, self._new = self._new, set()
        self._turn(self._next)

    def check(self, mark: GenerationMark) -> None:
        """Reads every row of the checkpoint with this mark.

        Raises:
            UserError: one of the files is damaged.
        """
        file = self._files[mark.generation]
        file.restore(IndexMark(mark.entries, mark.digest))
        file.verify(file.clients())

    def restore(self, mark: GenerationMark) -> None:
        """Returns to the rows of the checkpoint with this mark; the next one copies what the other generation lacks."""
        self._mark, self._new, self._behind = IndexMark(mark.entries, mark.digest), set(), set()
        self._turn(mark.generation)
        _, following, last = self._places
        last.restore(self._mark)
        if not self._writable:
            return
        try:
            following.restore(IndexMark(mark.other_entries, mark.other_digest))
        except UserError:
            following.index.restore(IndexMark())
        crc, layout = last.index.crc, last.index.layout
        self._behind = {
            client for client in last.clients() if not following.holds(client, crc[client], layout[client])
        }

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _turn(self, last: int) -> None:
        """Makes a generation that of the last checkpoint; before the first one, that is an empty one."""
        self._last, self._next = last, 1 if last == 0 else 0
        self._places = self._new, self._files[self._next], self._files[last]


def drop_older_generation(folder: Path, saved: Mapping[str, Tensor], name: str = PRIVATE_ROWS) -> None:
    """Removes the rows that only the checkpoint before needed, when a run is finished.

    Args:
        folder: of the run.
        saved: what the last checkpoint remembers of its rows.
        name: of the subfolder with the rows.
    """
    place = Path(folder) / name
    for number, each in enumerate(GENERATIONS):
        if number == int(saved["generation"]):
            continue
        if number == SHARED:
            for file in ("rows", "index"):
                (place / file).unlink(missing_ok=True)
        else:
            shutil.rmtree(place / each, ignore_errors=True)


def space_taken(folder: Path, name: str = PRIVATE_ROWS) -> int:
    """Returns the bytes that the rows of a run take on disk."""
    files = (Path(folder) / name / each / "rows" for each in GENERATIONS)
    return sum(file.stat().st_blocks * 512 for file in files if file.exists())
