"""Rows of private state in a file: slots of one size, written where no checkpoint looks.

Rows are read and written by position, not through a memory map: mapped pages would count as resident memory, and a
full disk would end the process by a signal instead of a sentence.  The file is sparse; a slot takes room when a row
is first written to it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from idiolect.errors import UserError
from idiolect.federation.row_format import Packed, RowFormat
from idiolect.federation.slot_index import NOWHERE, Mark, SlotIndex

__all__ = ["FOLDER", "RowFile"]

FOLDER = "private"  # of a run, which holds the two files


class RowFile:
    """Args:
    folder: of the run; its subfolder ``private`` is made when the first row is written.
    """

    def __init__(self, folder: Path, form: RowFormat, population: int) -> None:
        self.form = form
        self.path = Path(folder) / FOLDER / "rows"
        self.index = SlotIndex(Path(folder) / FOLDER / "index", population)
        self._handle: int | None = None

    def __contains__(self, client: int) -> bool:
        return bool(self.index.slot[client] != NOWHERE)

    def clients(self) -> list[int]:
        """Whose rows there are, in order."""
        return np.flatnonzero(self.index.slot != NOWHERE).tolist()

    def read(self, client: int, row: Tensor) -> int:
        """Fills a row of host memory, and gives the number of its layout."""
        slot, crc, kind = (int(field[client]) for field in (self.index.slot, self.index.crc, self.index.kind))
        part = memoryview(row.numpy())[: self.form.size(kind)]
        done, handle = 0, self._open()
        while done < len(part):
            got = os.preadv(handle, [part[done:]], slot * self.form.row_bytes + done)
            if got == 0:
                break
            done += got
        if done < len(part) or zlib.crc32(part) != crc:
            raise UserError(f"{self.path} is damaged: the row of client {client} does not match its checksum")
        return kind

    def read_all(self, clients: Sequence[int]) -> Packed:
        rows = torch.zeros(len(clients), self.form.row_bytes, dtype=torch.uint8)
        return Packed(rows, [self.read(client, row) for client, row in zip(clients, rows, strict=True)])

    def write(self, client: int, row: Tensor, kind: int) -> None:
        """Puts a row of host memory where no checkpoint looks."""
        part = memoryview(row.numpy())[: self.form.size(kind)]
        at = self.index.place(client, zlib.crc32(part), kind) * self.form.row_bytes
        handle, done = self._open(), 0
        try:
            while done < len(part):
                done += os.pwrite(handle, part[done:], at + done)
        except OSError as error:
            raise UserError(
                f"cannot write private state to {self.path}: {error.strerror}; make room there and go on with --resume"
            ) from error

    def mark(self) -> Mark:
        """Everything written so far is on disk when this returns."""
        os.fsync(self._open())
        mark = self.index.mark()
        for folder in (self.path.parent, self.path.parent.parent):
            _sync(folder)
        return mark

    def release(self) -> None:
        self.index.release()

    def restore(self, mark: Mark) -> None:
        self.index.restore(mark)
        self._open()

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _open(self) -> int:
        if self._handle is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise UserError(f"cannot open {self.path}: {error.strerror}") from error
        return self._handle


def _sync(folder: Path) -> None:
    """Brings the names of new files to the disk, where the system lets a folder be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
