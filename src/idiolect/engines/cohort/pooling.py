"""Max-pooling that batches over clients, for windows that do not overlap, with its gradient written out.

    y[h, w] = max_{i, j < k} x[k h + i, k w + j],      gradient to the first of several largest

as ``torch.max_pool2d``.  The forward pass is elementwise, so that a compiler fuses it with its neighbours, and keeps
one byte for every window (which place won); the backward pass reads nothing else of it.

Deviations: none in value or gradient; NaN counts as largest, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.engines.cohort.cuda.kernels import HAS_TRITON

__all__ = ["max_pool", "plain", "unpool"]

# Numbers of a result from which unpooling is faster on a GPU as a kernel of its own than fused with the kernel before
# (one NVIDIA H200: 1.8 million were not, 14 million were).
MANY = 1 << 21


def plain(x: Tensor, side: int) -> Tensor:
    """Computes in PyTorch what ``max_pool`` computes."""
    return F.max_pool2d(x, side)


def max_pool(x: Tensor, side: int) -> Tensor:
    """Returns the largest value of each window; rows and columns that fill no window are left out.

    Args:
        x: [B, C, H, W], fastest where channels come last in memory.
        side: 1 <= k <= 16, side of the windows and stride.
    """
    largest, _ = _max_pool(x.permute(0, 2, 3, 1), side)
    return largest.permute(0, 3, 1, 2)


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
    """Puts each value at the place of its window that won, and zero elsewhere: [B, h, w, C] -> [B, *size, C]."""
    return _unpool(g, winner, side, *size)


class _Unpool(torch.autograd.Function):
    """[B, h, w, C] twice -> [B, height, width, C]."""

    @staticmethod
    def forward(g: Tensor, winner: Tensor, side: int, height: int, width: int) -> Tensor:
        n_numbers = g.shape[0] * height * width * g.shape[3]
        is_small = g.is_cuda and n_numbers < MANY
        compute = _unpool_plainly if is_small else torch.ops.idiolect.unpool
        return compute(g, winner, side, height, width)

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
        return torch.unflatten(_unpool(g, winner, *options), 0, (info.batch_size, -1)), 0


_max_pool: Callable[..., tuple[Tensor, Tensor]] = _MaxPool.apply
_unpool: Callable[..., Tensor] = _Unpool.apply


def _windows(x: Tensor, side: int) -> Tensor:
    """Views [B, H, W, C] as [B, h, side, w, side, C], without rows and columns that fill no window."""
    height, width = x.shape[1] // side, x.shape[2] // side
    inner = x[:, : height * side, : width * side]
    return torch.unflatten(torch.unflatten(inner, 2, (width, side)), 1, (height, side))


def _unpool_plainly(g: Tensor, winner: Tensor, side: int, height: int, width: int) -> Tensor:
    """Computes in PyTorch what the operator ``unpool`` computes; a compiler can fuse it with the kernel before."""
    place = torch.arange(side * side, dtype=torch.uint8, device=g.device).view(side, 1, side, 1)
    spread = torch.where(winner[:, :, None, :, None] == place, g[:, :, None, :, None], 0)
    inner = spread.flatten(3, 4).flatten(1, 2)
    return F.pad(inner, (0, 0, 0, width - inner.shape[2], 0, height - inner.shape[1])).contiguous()


@torch.library.custom_op("idiolect::unpool", mutates_args=())
def _unpool_operator(g: Tensor, winner: Tensor, side: int, height: int, width: int) -> Tensor:
    """g, winner [N, h, w, C] -> [N, H, W, C], zero but for each value at the place of its window that won."""
    if g.is_cuda and HAS_TRITON:
        from idiolect.engines.cohort.cuda.kernels.convolution import unpool  # noqa: PLC0415

        return unpool(g.contiguous(), winner.contiguous(), side, height, width)
    return _unpool_plainly(g, winner, side, height, width)


@_unpool_operator.register_fake
def _(g: Tensor, winner: Tensor, side: int, height: int, width: int) -> Tensor:
    return g.new_empty(g.shape[0], height, width, g.shape[3])
