"""Rows of private state on disk, with the most recently used ones cached in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from idiolect.federation.store.cache import CachedRow, RowCache
from idiolect.federation.store.prefetch import RowPrefetcher
from idiolect.federation.store.row_format import PackedRows, RowFormat
from idiolect.federation.store.row_generations import GenerationMark, RowGenerations

__all__ = ["DiskStorage"]


class DiskStorage:
    """Keeps rows in a file and a part of them in a cache.

    Args:
        cache_bytes: memory of the cache; a changed row is written when it leaves the cache and at checkpoints.
    """

    device = torch.device("cpu")

    def __init__(self, form: RowFormat, population: int, file: RowGenerations, cache_bytes: int) -> None:
        self._form = form
        self._file = file
        self._cache = RowCache(cache_bytes, form.row_bytes, population, self._write)
        self._prefetcher = RowPrefetcher(self._read, form.row_bytes)
        self._kept = np.zeros(population, bool)

    def __contains__(self, client: int) -> bool:
        return bool(self._kept[client])

    def __len__(self) -> int:
        return int(self._kept.sum())

    def get(self, clients: Sequence[int]) -> PackedRows:
        rows = torch.empty(len(clients), self._form.row_bytes, dtype=torch.uint8)
        layouts = []
        for client, place in zip(clients, rows, strict=True):
            row = self._cache.get(client) or self._prefetcher.take(client)
            if row is None:
                row = self._read(client, place)
            else:
                place[: len(row.content)] = row.content
            if client not in self._cache:
                self._cache.put(client, row, changed=False)
            layouts.append(row.layout)
        return PackedRows(rows, layouts)

    def put(self, clients: Sequence[int], packed: PackedRows) -> None:
        for client, row, layout in zip(clients, packed.rows, packed.layouts, strict=True):
            self._prefetcher.forget(client)
            self._cache.put(client, CachedRow(row[: self._form.size(layout)], layout), changed=True)
        self._kept[list(clients)] = True

    def prefetch(self, clients: Sequence[int]) -> None:
        self._prefetcher.start([c for c in clients if c not in self._cache and c in self._file])

    def save(self) -> GenerationMark:
        self._cache.flush()
        return self._file.mark()

    def saved(self) -> None:
        self._file.release()

    def check(self, mark: GenerationMark) -> None:
        self._file.check(mark)

    def restore(self, mark: GenerationMark) -> None:
        self._prefetcher.stop()
        self._cache.clear()
        self._file.restore(mark)
        self._kept[:] = False
        self._kept[self._file.clients()] = True

    def close(self) -> None:
        self._prefetcher.stop()
        self._file.close()

    def _read(self, client: int, memory: Tensor) -> CachedRow:
        layout = self._file.read(client, memory)
        return CachedRow(memory[: self._form.size(layout)], layout)

    def _write(self, client: int, row: CachedRow) -> None:
        self._file.write(client, row.content, row.layout)
