"""The rows used last, in memory up to a stated size; those changed are written when they have to leave."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from torch import Tensor

__all__ = ["Row", "RowCache"]

OVERHEAD = 600  # bytes that a tensor and its entry take beside its content


class Row(NamedTuple):
    """A row's own memory, and the number of its layout."""

    content: Tensor
    kind: int


class RowCache:
    """Args:
    limit: bytes, with what Python needs around each row counted in; 0 keeps nothing.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._rows: OrderedDict[int, Row] = OrderedDict()
        self._changed: set[int] = set()

    def __contains__(self, client: int) -> bool:
        return client in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, client: int) -> Row | None:
        if client not in self._rows:
            return None
        self._rows.move_to_end(client)
        return self._rows[client]

    def put(self, client: int, row: Row, changed: bool) -> dict[int, Row]:
        """Keeps a row, and gives those back that left for it and are nowhere else."""
        old = self._rows.pop(client, None)
        self._size += _bytes(row) - (_bytes(old) if old is not None else 0)
        self._rows[client] = row
        if changed:
            self._changed.add(client)
        left: dict[int, Row] = {}
        while self._size > self._limit:
            oldest, out = self._rows.popitem(last=False)
            self._size -= _bytes(out)
            if oldest in self._changed:
                self._changed.remove(oldest)
                left[oldest] = out
        return left

    def settle(self) -> dict[int, Row]:
        """The rows that are nowhere else; the caller writes them now."""
        changed = {client: self._rows[client] for client in sorted(self._changed)}
        self._changed.clear()
        return changed

    def clear(self) -> None:
        self._rows.clear()
        self._changed.clear()
        self._size = 0


def _bytes(row: Row) -> int:
    return row.content.numel() + OVERHEAD
