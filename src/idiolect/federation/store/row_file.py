"""The rows of private state of one generation of checkpoints: rows in slots of one size, and an index.

``rows`` holds the rows.  They are read and written by position, not through a memory map: mapped pages would count
as resident memory, and a full disk would end the process by a signal instead of an error.  The file is sparse: a slot
takes space when a row is first written to it.

``index`` says which slot holds which client's row.  A row that the last checkpoint of this generation knows is never
overwritten: the client's next row goes to another slot, and the old slot is free once a later checkpoint is on disk.
The index is a log: a checkpoint appends one entry for each row that changed, and remembers the length of the log.  The
entries up to that length, with the last one of each client, are the index at that checkpoint.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from idiolect.errors import UserError
from idiolect.federation.store.row_format import RowFormat

__all__ = ["NOWHERE", "IndexMark", "RowFile", "SlotIndex"]

ENTRY = np.dtype([("client", "<u4"), ("slot", "<u4"), ("crc", "<u4"), ("layout", "<u4")])
NOWHERE = -1  # the slot of a client without a row


class IndexMark(NamedTuple):
    """A length of the index's log that a checkpoint remembers.

    Args:
        entries: the number of entries.
        digest: CRC-32 of the entries.
    """

    entries: int = 0
    digest: int = 0


class RowFile:
    """Reads and writes single rows, and never overwrites a row that its last checkpoint knows.

    Args:
        folder: of the two files, which is created when the first row is written.
        writable: whether rows are ever written; the files of a finished run are only read.
    """

    def __init__(self, folder: Path, form: RowFormat, population: int, writable: bool = True) -> None:
        self.form = form
        self._writable = writable
        self.path = Path(folder) / "rows"
        self.index = SlotIndex(Path(folder) / "index", population)
        self._handle: int | None = None

    def __contains__(self, client: int) -> bool:
        return bool(self.index.slot[client] != NOWHERE)

    def clients(self) -> list[int]:
        """Returns the clients that have a row, in order."""
        return [int(client) for client in np.flatnonzero(self.index.slot != NOWHERE)]

    def read(self, client: int, row: Tensor) -> int:
        """Reads a row into host memory, and returns the number of its layout."""
        index = self.index
        slot, crc, layout = (int(field[client]) for field in (index.slot, index.crc, index.layout))
        part = _bytes(row)[: self.form.size(layout)]
        done, handle = 0, self._open()
        while done < len(part):
            got = os.preadv(handle, [part[done:]], slot * self.form.row_bytes + done)
            if got == 0:
                break
            done += got
        if done < len(part) or zlib.crc32(part) != crc:
            raise UserError(f"{self.path} is damaged: the row of client {client} does not match its checksum")
        return layout

    def write(self, client: int, row: Tensor, layout: int) -> None:
        """Writes a row of host memory to a slot that no checkpoint reads."""
        part = _bytes(row)[: self.form.size(layout)]
        at = self.index.place(client, zlib.crc32(part), layout) * self.form.row_bytes
        handle, done = self._open(), 0
        try:
            while done < len(part):
                done += os.pwrite(handle, part[done:], at + done)
        except OSError as error:
            raise UserError(
                f"cannot write private state to {self.path}: {error.strerror}; make room there and go on with --resume"
            ) from error

    def mark(self) -> IndexMark:
        """Writes everything to disk, reads back what was written, and returns the mark for the next checkpoint."""
        os.fsync(self._open())
        self.verify(sorted(self.index.fresh))
        mark = self.index.mark()
        for folder in (self.path.parent, *self.path.parents[1:3]):
            _sync(folder)
        return mark

    def verify(self, clients: Sequence[int]) -> None:
        """Reads the rows of clients, and raises ``UserError`` where one does not match its checksum."""
        row = torch.empty(self.form.row_bytes, dtype=torch.uint8)
        for client in clients:
            self.read(client, row)

    def holds(self, client: int, crc: int, layout: int) -> bool:
        """Whether the row of a client is here as it should be."""
        index = self.index
        if client not in self or (index.crc[client], index.layout[client]) != (crc, layout):
            return False
        try:
            self.verify([client])
        except UserError:
            return False
        return True

    def release(self) -> None:
        """Announces that the checkpoint with the last mark is on disk."""
        self.index.release()

    def restore(self, mark: IndexMark) -> None:
        """Returns to the rows of the checkpoint with this mark.

        Raises:
            UserError: the index does not match the mark, or there are no rows.
        """
        self.index.restore(mark)
        if mark.entries and not self.path.exists():
            raise UserError(f"{self.path} is missing")
        self._open()

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _open(self) -> int:
        if self._handle is None:
            try:
                if self._writable:
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                how = os.O_RDWR | os.O_CREAT if self._writable else os.O_RDONLY
                self._handle = os.open(self.path, how, 0o666)
            except OSError as error:
                raise UserError(f"cannot open {self.path}: {error.strerror}") from error
        return self._handle


class SlotIndex:
    """The slot, checksum and layout of each client's row.

    Args:
        path: of the log, which is created with the first mark.
        population: clients are 0, ..., population - 1.
    """

    def __init__(self, path: Path, population: int) -> None:
        self.path = path
        self.slot = np.full(population, NOWHERE, np.int32)
        self.crc = np.zeros(population, np.uint32)
        self.layout = np.zeros(population, np.uint8)
        self._mark = IndexMark()
        self._n_slots = 0
        self._free: list[int] = []
        self._left: list[int] = []  # given up since the last mark, whose checkpoint may read them
        self.fresh: set[int] = set()  # clients whose current row no checkpoint knows

    def place(self, client: int, crc: int, layout: int) -> int:
        """Returns the slot for a client's new row."""
        if client not in self.fresh:
            if self.slot[client] != NOWHERE:
                self._left.append(int(self.slot[client]))
            self.fresh.add(client)
            self.slot[client] = self._free.pop() if self._free else self._n_slots
            self._n_slots = max(self._n_slots, int(self.slot[client]) + 1)
        self.crc[client], self.layout[client] = crc, layout
        return int(self.slot[client])

    def mark(self) -> IndexMark:
        """Appends what changed to the log; called after the rows are on disk and before the checkpoint is."""
        changed = np.array(sorted(self.fresh), np.int64)
        entries = np.empty(len(changed), ENTRY)
        entries["client"] = changed
        entries["slot"] = self.slot[changed]
        entries["crc"] = self.crc[changed]
        entries["layout"] = self.layout[changed]
        content = entries.tobytes()
        self._append(content)
        last = self._mark
        self._mark = IndexMark(last.entries + len(changed), zlib.crc32(content, last.digest))
        self._read(self._mark)
        return self._mark

    def release(self) -> None:
        """Frees the slots that only the checkpoint before the last mark could read."""
        self._free += self._left
        self._left = []
        self.fresh.clear()

    def restore(self, mark: IndexMark) -> None:
        """Returns to the index of a checkpoint, and forgets what came after."""
        entries = self._read(mark)
        self.slot[:] = NOWHERE
        for name in ("slot", "crc", "layout"):
            getattr(self, name)[entries["client"]] = entries[name]  # the last of several entries counts
        self._mark, self._left = mark, []
        self.fresh.clear()
        self._n_slots = int(entries["slot"].max(initial=0)) + 1 if len(entries) else 0
        self._free = sorted(set(range(self._n_slots)) - set(self.slot.tolist()), reverse=True)

    def _append(self, content: bytes) -> None:
        """Writes after the entries of the last mark, and cuts off what an abandoned run left there."""
        try:
            with open(self.path, "r+b" if self.path.exists() else "w+b") as log:
                log.seek(self._mark.entries * ENTRY.itemsize)
                log.write(content)
                log.truncate()
                log.flush()
                os.fsync(log.fileno())
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}; make room there") from error

    def _read(self, mark: IndexMark) -> NDArray[np.void]:
        wanted = mark.entries * ENTRY.itemsize
        content = b""
        if wanted:
            try:
                with open(self.path, "rb") as log:
                    content = log.read(wanted)
            except OSError as error:
                raise UserError(f"{self.path} cannot be read: {error.strerror}") from error
        if len(content) != wanted or zlib.crc32(content) != mark.digest:
            raise UserError(f"{self.path} is damaged: it does not match its checkpoint")
        return np.frombuffer(content, ENTRY)


def _bytes(row: Tensor) -> memoryview:
    """Returns a row of host memory as bytes that can be read and written in place."""
    return row.numpy().data


def _sync(folder: Path) -> None:
    """Writes the names of new files to disk, where the system lets a folder be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
