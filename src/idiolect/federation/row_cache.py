"""The rows used last, in memory up to a stated size; those changed are written when they have to leave.

The rows lie in one piece of memory that is taken once and touched as it fills: large rows that come and go one by one
would leave holes behind which the process never gives back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Row", "RowCache"]

OVERHEAD = 200  # bytes that a row's entry takes beside its content


class Row(NamedTuple):
    """Bytes of host memory, and the number of their layout."""

    content: Tensor
    kind: int


class Entry(NamedTuple):
    slot: int
    size: int
    kind: int


class RowCache:
    """Args:
    limit: bytes, with what Python needs for each row counted in; fewer than a row takes keep nothing.
    row_bytes: of the largest row.
    most: rows that there can be.
    write: called with a row that changed when it has to leave.
    """

    def __init__(self, limit: int, row_bytes: int, most: int, write: Callable[[int, Row], None]) -> None:
        self._room = min(most, limit // (row_bytes + OVERHEAD))
        self._rows = torch.empty(self._room, row_bytes, dtype=torch.uint8)
        self._write = write
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._changed: set[int] = set()

    def __contains__(self, client: int) -> bool:
        return client in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, client: int) -> Row | None:
        """The row, in memory that the next ``put`` may use for another."""
        if client not in self._entries:
            return None
        self._entries.move_to_end(client)
        return self._row(client)

    def put(self, client: int, row: Row, changed: bool) -> None:
        """Keeps a copy."""
        if not self._room:
            if changed:
                self._write(client, row)
            return
        if client in self._entries:
            slot = self._entries.pop(client).slot
        else:
            slot = len(self._entries) if len(self._entries) < self._room else self._free_oldest()
        self._entries[client] = Entry(slot, len(row.content), row.kind)
        self._row(client).content.copy_(row.content)
        if changed:
            self._changed.add(client)

    def settle(self) -> None:
        """Writes the rows that are nowhere else, which stay."""
        for client in sorted(self._changed):
            self._write(client, self._row(client))
        self._changed.clear()

    def clear(self) -> None:
        self._entries.clear()
        self._changed.clear()

    def _free_oldest(self) -> int:
        oldest = next(iter(self._entries))
        if oldest in self._changed:
            self._write(oldest, self._row(oldest))
            self._changed.remove(oldest)
        return self._entries.pop(oldest).slot

    def _row(self, client: int) -> Row:
        slot, size, kind = self._entries[client]
        return Row(self._rows[slot, :size], kind)
