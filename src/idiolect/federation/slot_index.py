"""Which slot of a row file holds whose row, kept so that no checkpoint ever loses one.

A row that a checkpoint knows is never overwritten: the next one of the same client goes to another slot, and the
old slot is free only when no checkpoint that is still kept can ask for it (the last two are kept).  The index on disk
is a log: a checkpoint appends one entry for each row that changed, and remembers how long the log was.  The first so
many entries, the last of each client counting, are the index as that checkpoint saw it.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from idiolect.errors import UserError

__all__ = ["Mark", "SlotIndex"]

ENTRY = np.dtype([("client", "<u4"), ("slot", "<u4"), ("crc", "<u4"), ("kind", "<u4")])
NOWHERE = -1


class Mark(NamedTuple):
    """A state of the log.

    Args:
        entries: how many there were.
        digest: CRC-32 of them.
        before: how many the checkpoint before had.
    """

    entries: int = 0
    digest: int = 0
    before: int = 0


class SlotIndex:
    """Args:
    path: of the log, which is made when the first mark is set.
    population: clients are 0, ..., population - 1.
    """

    def __init__(self, path: Path, population: int) -> None:
        self.path = path
        self.slot = np.full(population, NOWHERE, np.int32)
        self.crc = np.zeros(population, np.uint32)
        self.kind = np.zeros(population, np.uint8)
        self._mark = Mark()
        self._n_slots = 0
        self._free: list[int] = []
        self._left: list[int] = []  # since the last mark: both checkpoints may ask for them
        self._older: list[int] = []  # between the last two marks: the older checkpoint may ask for them
        self._fresh: set[int] = set()  # clients whose row no checkpoint knows

    def place(self, client: int, crc: int, kind: int) -> int:
        """The slot where the client's new row goes."""
        if client not in self._fresh:
            if self.slot[client] != NOWHERE:
                self._left.append(int(self.slot[client]))
            self._fresh.add(client)
            self.slot[client] = self._free.pop() if self._free else self._n_slots
            self._n_slots = max(self._n_slots, int(self.slot[client]) + 1)
        self.crc[client], self.kind[client] = crc, kind
        return int(self.slot[client])

    def mark(self) -> Mark:
        """Brings what changed to the disk; to be called when the rows are there, and before the checkpoint is."""
        changed = np.array(sorted(self._fresh), np.int64)
        entries = np.empty(len(changed), ENTRY)
        for name, values in (
            ("client", changed),
            ("slot", self.slot),
            ("crc", self.crc),
            ("kind", self.kind),
        ):
            entries[name] = values if name == "client" else values[changed]
        content = entries.tobytes()
        self._append(content)
        last = self._mark
        self._mark = Mark(last.entries + len(changed), zlib.crc32(content, last.digest), last.entries)
        return self._mark

    def release(self) -> None:
        """The checkpoint of the last mark is on disk: what only older ones could ask for is free."""
        self._free += self._older
        self._older, self._left = self._left, []
        self._fresh.clear()

    def restore(self, mark: Mark) -> None:
        """The index as a checkpoint saw it; whatever came after is forgotten."""
        entries = self._read(mark)
        self.slot[:] = NOWHERE
        for name in ("slot", "crc", "kind"):
            getattr(self, name)[entries["client"]] = entries[name]  # of several entries the last counts
        earlier = np.full_like(self.slot, NOWHERE)
        earlier[entries["client"][: mark.before]] = entries["slot"][: mark.before]
        now, then = set(self.slot.tolist()), set(earlier.tolist())
        self._mark, self._fresh, self._left = mark, set(), []
        self._n_slots = int(entries["slot"].max(initial=0)) + 1 if len(entries) else 0
        self._older = sorted(then - now - {NOWHERE})
        self._free = sorted(set(range(self._n_slots)) - now - then, reverse=True)

    def _append(self, content: bytes) -> None:
        """After the entries of the last mark; what an abandoned run left there goes."""
        try:
            with open(self.path, "r+b" if self.path.exists() else "w+b") as log:
                log.seek(self._mark.entries * ENTRY.itemsize)
                log.write(content)
                log.truncate()
                log.flush()
                os.fsync(log.fileno())
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}; make room there") from error

    def _read(self, mark: Mark) -> np.ndarray:
        wanted = mark.entries * ENTRY.itemsize
        content = b""
        if wanted:
            try:
                with open(self.path, "rb") as log:
                    content = log.read(wanted)
            except OSError as error:
                raise UserError(f"{self.path} cannot be read: {error.strerror}") from error
        if len(content) != wanted or zlib.crc32(content) != mark.digest:
            raise UserError(f"{self.path} is damaged: it does not match its checkpoint; start the run afresh")
        return np.frombuffer(content, ENTRY)
