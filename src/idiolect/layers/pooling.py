"""Max-pooling over windows that do not overlap, with its gradient written out.

    y[h, w] = max_{i, j < k} x[k h + i, k w + j],      gradient to the first of several largest

as ``torch.max_pool2d``.  Forward and backward are elementwise, so that a compiler fuses them with their neighbours:
the forward pass keeps one byte for every window (which place won), the backward pass reads nothing else.

Deviations: none in value or gradient; NaN counts as largest, as there.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["max_pool", "plain"]


def plain(x: Tensor, side: int) -> Tensor:
    """The meaning: what ``max_pool`` equals."""
    return F.max_pool2d(x, side)


def max_pool(x: Tensor, side: int) -> Tensor:
    """``plain``; rows and columns that fill no window are left out.

    Args:
        x: [..., H, W].
        side: 1 <= k <= 16, side of the windows and stride.
    """
    return _MaxPool.apply(x, side)[0]


class _MaxPool(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, side: int) -> tuple[Tensor, Tensor]:
        height, width = x.shape[-2] // side, x.shape[-1] // side
        inner = x[..., : height * side, : width * side]
        windows = inner.unflatten(-1, (width, side)).unflatten(-3, (height, side))
        largest, winner = windows[..., 0, :, 0], None
        for place in range(1, side * side):
            value = windows[..., place // side, :, place % side]
            better = (value > largest) | value.isnan()
            winner = better.to(torch.uint8) if winner is None else torch.where(better, place, winner)
            largest = torch.where(better, value, largest)
        return largest, torch.zeros_like(largest, dtype=torch.uint8) if winner is None else winner

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.side = inputs
        ctx.size = x.shape[-2:]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Any:
        (winner,), side = ctx.saved_tensors, ctx.side
        place = torch.arange(side * side, dtype=torch.uint8, device=g.device).view(side, 1, side)
        spread = torch.where(winner[..., :, None, :, None] == place, g[..., :, None, :, None], 0)
        inner = spread.flatten(-4, -3).flatten(-2, -1)
        below, right = ctx.size[0] - inner.shape[-2], ctx.size[1] - inner.shape[-1]
        return (F.pad(inner, (0, right, 0, below)) if below or right else inner), None
