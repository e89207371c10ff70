"""Max-pooling over windows that do not overlap, with its gradient written out.

    y[h, w] = max_{i, j < k} x[k h + i, k w + j],      gradient to the first of several largest

as ``torch.max_pool2d``.  The forward pass is elementwise, so that a compiler fuses it with its neighbours, and keeps
one byte for every window (which place won); the backward pass reads nothing else of it.

Deviations: none in value or gradient; NaN counts as largest, as there.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.engines.cohort.operations import unpool_plainly

__all__ = ["max_pool", "plain", "unpool"]

# Numbers of a result from which a kernel of its own is faster on a GPU than a part of the one before (one NVIDIA H200:
# 1.8 million were not, 14 million were).
MANY = 1 << 21


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
        windows = _windows(x, side)
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
        return unpool(g, ctx.saved_tensors[0], ctx.side, ctx.size), None


def unpool(g: Tensor, winner: Tensor, side: int, size: tuple[int, int]) -> Tensor:
    """[B, h, w, C] -> [B, *size, C]: each value at the place of its window that won, zero elsewhere."""
    return _Unpool.apply(g, winner, side, *size)


class _Unpool(torch.autograd.Function):
    @staticmethod
    def forward(g: Tensor, winner: Tensor, side: int, height: int, width: int) -> Tensor:
        n_numbers = g.shape[0] * height * width * g.shape[3]
        is_small = g.is_cuda and n_numbers < MANY
        return (unpool_plainly if is_small else torch.ops.idiolect.unpool)(g, winner, side, height, width)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, winner, ctx.side, _, _ = inputs
        ctx.save_for_backward(winner)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> Any:
        (winner,), side = ctx.saved_tensors, ctx.side
        windows = _windows(u, side)
        places = [windows[:, :, i, :, j] * (winner == i * side + j) for i in range(side) for j in range(side)]
        return torch.stack(places).sum(0), None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, g: Tensor, winner: Tensor, *options: int) -> tuple[Tensor, int]:
        g, winner = (
            (t.expand(info.batch_size, *t.shape) if axis is None else t.movedim(axis, 0)).flatten(0, 1)
            for t, axis in zip((g, winner), in_dims[:2], strict=True)
        )
        return _Unpool.apply(g, winner, *options).unflatten(0, (info.batch_size, -1)), 0


def _windows(x: Tensor, side: int) -> Tensor:
    """[B, H, W, C] -> [B, h, side, w, side, C]; rows and columns that fill no window are left out."""
    height, width = x.shape[1] // side, x.shape[2] // side
    inner = x[:, : height * side, : width * side]
    return inner.unflatten(2, (width, side)).unflatten(1, (height, side))
