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
        x: [B, C, H, W], fastest where channels come last in memory.
        side: 1 <= k <= 16, side of the windows and stride.
    """
    return _MaxPool.apply(x.permute(0, 2, 3, 1), side)[0].permute(0, 3, 1, 2)


class _MaxPool(torch.autograd.Function):
    """[B, H, W, C] -> [B, h, w, C], and which place of its window each value came from."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, side: int) -> tuple[Tensor, Tensor]:
        height, width = x.shape[1] // side, x.shape[2] // side
        inner = x[:, : height * side, : width * side]
        windows = inner.unflatten(2, (width, side)).unflatten(1, (height, side))  # [B, h, side, w, side, C]
        largest = windows[:, :, 0, :, 0]
        winner = torch.zeros_like(largest, dtype=torch.uint8)
        for place in range(1, side * side):
            value = windows[:, :, place // side, :, place % side]
            better = (value > largest) | value.isnan()
            winner = torch.where(better, place, winner)
            largest = torch.where(better, value, largest)
        return largest, winner

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.side = inputs
        ctx.size = x.shape[1:3]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Any:
        (winner,), side = ctx.saved_tensors, ctx.side
        place = torch.arange(side * side, dtype=torch.uint8, device=g.device).view(side, 1, side, 1)
        hit = winner.unsqueeze(2).unsqueeze(4) == place
        spread = torch.where(hit, g.unsqueeze(2).unsqueeze(4), 0)  # [B, h, side, w, side, C]
        inner = spread.flatten(3, 4).flatten(1, 2)
        below, right = ctx.size[0] - inner.shape[1], ctx.size[1] - inner.shape[2]
        return (F.pad(inner, (0, 0, 0, right, 0, below)) if below or right else inner), None
