"""Where packed rows are kept: the one thing in which stores differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from idiolect.federation.row_format import Packed
from idiolect.federation.slot_index import Mark

__all__ = ["Shelf"]


class Shelf(Protocol):
    device: torch.device  # of the rows it takes and gives

    def __contains__(self, client: int) -> bool: ...

    def __len__(self) -> int: ...

    def get(self, clients: Sequence[int]) -> Packed:
        """Fresh copies of rows that are there."""

    def put(self, clients: Sequence[int], packed: Packed) -> None: ...

    def prefetch(self, clients: Sequence[int]) -> None:
        """These rows are asked for next."""

    def save(self) -> Mark:
        """All rows are on disk when this returns; a checkpoint remembers the mark."""

    def saved(self) -> None:
        """The checkpoint with the last mark is on disk."""

    def restore(self, mark: Mark) -> None:
        """The rows as the checkpoint with this mark saw them."""

    def close(self) -> None: ...
