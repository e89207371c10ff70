"""Rows in a file, the ones used last in memory as well."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from idiolect.federation.read_ahead import ReadAhead
from idiolect.federation.row_cache import Row, RowCache
from idiolect.federation.row_file import RowFile
from idiolect.federation.row_format import Packed, RowFormat
from idiolect.federation.slot_index import Mark

__all__ = ["DiskShelf"]


class DiskShelf:
    """Args:
    cache_bytes: rows kept in memory; what changed is written when it leaves them, and at checkpoints.
    """

    device = torch.device("cpu")

    def __init__(self, form: RowFormat, population: int, file: RowFile, cache_bytes: int) -> None:
        self._form = form
        self._file = file
        self._cache = RowCache(cache_bytes, form.row_bytes, population, self._write)
        self._ahead = ReadAhead(self._read, form.row_bytes)
        self._kept = np.zeros(population, bool)

    def __contains__(self, client: int) -> bool:
        return bool(self._kept[client])

    def __len__(self) -> int:
        return int(self._kept.sum())

    def get(self, clients: Sequence[int]) -> Packed:
        rows = torch.empty(len(clients), self._form.row_bytes, dtype=torch.uint8)
        kinds = []
        for client, place in zip(clients, rows, strict=True):
            row = self._cache.get(client) or self._ahead.take(client)
            if row is None:
                row = self._read(client, place)
            else:
                place[: len(row.content)] = row.content
            if client not in self._cache:
                self._cache.put(client, row, changed=False)
            kinds.append(row.kind)
        return Packed(rows, kinds)

    def put(self, clients: Sequence[int], packed: Packed) -> None:
        for client, row, kind in zip(clients, packed.rows, packed.kinds, strict=True):
            self._ahead.forget(client)
            self._cache.put(client, Row(row[: self._form.size(kind)], kind), changed=True)
        self._kept[list(clients)] = True

    def prefetch(self, clients: Sequence[int]) -> None:
        self._ahead.start([c for c in clients if c not in self._cache and c in self._file])

    def save(self) -> Mark:
        self._cache.settle()
        return self._file.mark()

    def saved(self) -> None:
        self._file.release()

    def restore(self, mark: Mark) -> None:
        self._ahead.stop()
        self._cache.clear()
        self._file.restore(mark)
        self._kept[:] = False
        self._kept[self._file.clients()] = True

    def close(self) -> None:
        self._ahead.stop()
        self._file.close()

    def _read(self, client: int, memory: Tensor) -> Row:
        kind = self._file.read(client, memory)
        return Row(memory[: self._form.size(kind)], kind)

    def _write(self, client: int, row: Row) -> None:
        self._file.write(client, row.content, row.kind)
