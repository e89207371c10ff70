"""The context of a forward pass: which rows are real, which units train, which random keys belong to the rows.

A net has no train or eval mode and draws no noise; everything that changes its output besides parameters, buffers
and examples is in this value, so a forward pass is a pure function that can be batched over clients and replayed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["BatchContext"]


class BatchContext(NamedTuple):
    """What a forward pass over B rows needs to know besides the rows.

    Attributes:
        mask: [B], 1.0 for a real example and 0.0 for padding.
        train: one flag per unit of the net, input to output; a frozen unit is False and runs in eval mode.
        key: [B] int64, one planned random key per example; dropout noise is a function of it.
    """

    mask: Tensor
    train: tuple[bool, ...]
    key: Tensor

    @classmethod
    def plain(
        cls, n_rows: int, n_units: int, *, train: bool = False, device: torch.device | str | None = None
    ) -> BatchContext:
        """Returns a context with every row real, every unit in one mode and keys 0, 1, 2, ...

        >>> BatchContext.plain(2, 3).train
        (False, False, False)
        """
        return cls(torch.ones(n_rows, device=device), (train,) * n_units, torch.arange(n_rows, device=device))
