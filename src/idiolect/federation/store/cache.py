"""A cache of the most recently used rows, in memory up to a stated size.

Rows that changed are written when they are evicted.  All rows lie in one block that is allocated once and touched as it
fills: large rows allocated one by one would fragment memory that the process never returns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["CachedRow", "RowCache"]

OVERHEAD = 200  # bytes that Python needs for a row's slot, beside its content


class CachedRow(NamedTuple):
    """The bytes of a row in host memory, and the number of its layout."""

    content: Tensor
    layout: int


class CacheSlot(NamedTuple):
    """Where a row lies in the cache's block, and how many bytes of it are filled."""

    slot: int
    size: int
    layout: int


class RowCache:
    """Evicts the least recently used row when it is full.

    Args:
        limit: bytes, Python's overhead for each row included; a limit below one row keeps nothing.
        row_bytes: size of the largest row.
        most: the number of rows that exist at most.
        write: called with a changed row when it is evicted.
    """

    def __init__(
        self, limit: int, row_bytes: int, most: int, write: Callable[[int, CachedRow], None]
    ) -> None:
        self._capacity = min(most, limit // (row_bytes + OVERHEAD))
        self._rows = torch.empty(self._capacity, row_bytes, dtype=torch.uint8)
        self._write = write
        self._slots: OrderedDict[int, CacheSlot] = OrderedDict()
        self._changed: set[int] = set()

    def __contains__(self, client: int) -> bool:
        return client in self._slots

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, client: int) -> CachedRow | None:
        """Returns the row, in memory that the next ``put`` may reuse."""
        if client not in self._slots:
            return None
        self._slots.move_to_end(client)
        return self._row(client)

    def put(self, client: int, row: CachedRow, changed: bool) -> None:
        """Keeps a copy of the row."""
        if not self._capacity:
            if changed:
                self._write(client, row)
            return
        if client in self._slots:
            slot = self._slots.pop(client).slot
        else:
            slot = len(self._slots) if len(self._slots) < self._capacity else self._evict()
        self._slots[client] = CacheSlot(slot, len(row.content), row.layout)
        self._row(client).content.copy_(row.content)
        if changed:
            self._changed.add(client)

    def flush(self) -> None:
        """Writes all changed rows, which stay in the cache."""
        for client in sorted(self._changed):
            self._write(client, self._row(client))
        self._changed.clear()

    def clear(self) -> None:
        self._slots.clear()
        self._changed.clear()

    def _evict(self) -> int:
        """Removes the least recently used row, and returns its slot."""
        oldest = next(iter(self._slots))
        if oldest in self._changed:
            self._write(oldest, self._row(oldest))
            self._changed.remove(oldest)
        return self._slots.pop(oldest).slot

    def _row(self, client: int) -> CachedRow:
        slot, size, layout = self._slots[client]
        return CachedRow(self._rows[slot, :size], layout)
