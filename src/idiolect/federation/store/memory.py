"""Rows of private state in the memory of the host or of a device.

Rows lie side by side in blocks, which are allocated when they are needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from idiolect.federation.store.row_file import NOWHERE
from idiolect.federation.store.row_format import PackedRows, RowFormat
from idiolect.federation.store.row_generations import GenerationMark, RowGenerations

__all__ = ["MemoryStorage"]

BLOCK_BYTES = 1 << 20


class MemoryStorage:
    """Keeps all rows in memory.

    Args:
        file: where checkpoints write the rows that changed; without one nothing can be saved.
    """

    def __init__(
        self,
        form: RowFormat,
        population: int,
        device: torch.device | str = "cpu",
        file: RowGenerations | None = None,
    ) -> None:
        self._form = form
        self.device = torch.device(device)
        self._file = file
        self._slot = np.full(population, NOWHERE, np.int32)
        self._layout = np.zeros(population, np.uint8)
        self._kept = 0
        self._blocks: list[Tensor] = []
        self._per_block = max(1, BLOCK_BYTES // max(form.row_bytes, 1))
        self._changed: set[int] = set()

    def __contains__(self, client: int) -> bool:
        return bool(self._slot[client] != NOWHERE)

    def __len__(self) -> int:
        return self._kept

    def get(self, clients: Sequence[int]) -> PackedRows:
        rows = torch.empty(len(clients), self._form.row_bytes, dtype=torch.uint8, device=self.device)
        for client, row in zip(clients, rows, strict=True) if self._form.row_bytes else ():
            row.copy_(self._row(client))
        return PackedRows(rows, [int(self._layout[client]) for client in clients])

    def put(self, clients: Sequence[int], packed: PackedRows) -> None:
        self._keep(clients, packed)
        self._changed.update(clients)

    def prefetch(self, clients: Sequence[int]) -> None:
        """Does nothing, because all rows are in memory."""

    def save(self) -> GenerationMark:
        file = self._on_disk()
        for client in sorted(self._changed):
            file.write(client, self._row(client).cpu(), int(self._layout[client]))
        self._changed.clear()
        return file.mark()

    def saved(self) -> None:
        self._on_disk().release()

    def check(self, mark: GenerationMark) -> None:
        self._on_disk().check(mark)

    def restore(self, mark: GenerationMark) -> None:
        file = self._on_disk()
        file.restore(mark)
        self._slot[:], self._kept, self._blocks = NOWHERE, 0, []
        for client in file.clients():
            self._keep([client], file.read_all([client]))
        self._changed.clear()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _keep(self, clients: Sequence[int], packed: PackedRows) -> None:
        for client, row, layout in zip(clients, packed.rows, packed.layouts, strict=True):
            if self._slot[client] == NOWHERE:
                if self._kept == len(self._blocks) * self._per_block:
                    self._blocks.append(self._block())
                self._slot[client] = self._kept
                self._kept += 1
            if size := self._form.size(layout):
                self._row(client)[:size] = row[:size]
            self._layout[client] = layout

    def _row(self, client: int) -> Tensor:
        block, place = divmod(int(self._slot[client]), self._per_block)
        return self._blocks[block][place]

    def _block(self) -> Tensor:
        shape = self._per_block, self._form.row_bytes
        return torch.empty(shape, dtype=torch.uint8, device=self.device)

    def _on_disk(self) -> RowGenerations:
        if self._file is None:
            raise RuntimeError("a store without a folder cannot be saved")
        return self._file
