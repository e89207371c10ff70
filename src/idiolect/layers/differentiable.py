"""The operations of a cohort's convolutions with their gradients.

    y = convolution(x, w)    gradient by x: convolution(g, w turned round)    gradient by w: weight_gradient(x, g)

Both are linear in each argument and each other's gradients, so the pair can be differentiated as often as one likes.
All carry an axis of clients; ``vmap``, however often, makes it longer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from idiolect.layers.pooling import unpool

__all__ = ["Convolution", "PooledConvolution", "WeightGradient"]


class Convolution(torch.autograd.Function):
    """[C, B, H, W, I] and [C, O, side side I] -> [C, B, H', W', O]."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, side: int, padding: int) -> Tensor:
        return torch.ops.idiolect.convolution(x, w, side, padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, w, ctx.side, ctx.padding = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return *_backward(ctx, *ctx.saved_tensors, g.contiguous()), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor, *options: int) -> tuple[Tensor, int]:
        given, axis = _joined(info, in_dims, x, w)
        return Convolution.apply(*given, *options).unflatten(axis, (info.batch_size, -1)), axis


class PooledConvolution(torch.autograd.Function):
    """The same with [C, B, h, w, O] largest values, and which place of its window each came from."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, side: int, padding: int, pool: int) -> tuple[Tensor, Tensor]:
        return torch.ops.idiolect.pooled_convolution(x, w, side, padding, pool)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, w, ctx.side, ctx.padding, ctx.pool = inputs
        ctx.size = tuple(n + 2 * ctx.padding - ctx.side + 1 for n in x.shape[2:4])
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, w, output[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Any:
        x, w, winner = ctx.saved_tensors
        whole = unpool(g.flatten(0, 1), winner.flatten(0, 1), ctx.pool, ctx.size)
        return *_backward(ctx, x, w, whole.unflatten(0, g.shape[:2])), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor, *options: int) -> tuple[Any, tuple[int, int]]:
        given, axis = _joined(info, in_dims, x, w)
        found = PooledConvolution.apply(*given, *options)
        return tuple(t.unflatten(axis, (info.batch_size, -1)) for t in found), (axis, axis)


class WeightGradient(torch.autograd.Function):
    """[C, B, H, W, I] and [C, B, H', W', O] -> [C, O, side side I]."""

    @staticmethod
    def forward(x: Tensor, g: Tensor, side: int, padding: int) -> Tensor:
        return torch.ops.idiolect.weight_gradient(x, g, side, padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, g, ctx.side, ctx.padding = inputs
        ctx.save_for_backward(x, g)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> Any:
        x, g = ctx.saved_tensors
        gx = Convolution.apply(g, _turned(u, ctx.side), ctx.side, ctx.side - 1 - ctx.padding)
        return gx, Convolution.apply(x, u, ctx.side, ctx.padding), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, g: Tensor, *options: int) -> tuple[Tensor, int]:
        found = WeightGradient.apply(*_as_clients(info, in_dims, x, g), *options)
        return found.unflatten(0, (info.batch_size, -1)), 0


def _backward(ctx: Any, x: Tensor, w: Tensor, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The gradients by x and by w of a convolution whose result has the gradient g."""
    gx = gw = None
    if ctx.needs_input_grad[0]:
        gx = Convolution.apply(g, _turned(w, ctx.side), ctx.side, ctx.side - 1 - ctx.padding)
    if ctx.needs_input_grad[1]:
        gw = WeightGradient.apply(x, g, ctx.side, ctx.padding)
    return gx, gw


def _turned(w: Tensor, side: int) -> Tensor:
    """The weights that carry a gradient back: taps reversed, input and output swapped."""
    taps = w.unflatten(2, (side, side, -1))  # [C, O, side, side, I]
    return taps.flip(2, 3).permute(0, 4, 2, 3, 1).flatten(2)


def _joined(info: Any, in_dims: Any, x: Tensor, w: Tensor) -> tuple[list[Tensor], int]:
    """The axis that is mapped over joined to that of rows where weights are shared, else to that of clients."""
    if in_dims[1] is None:
        return [x.movedim(in_dims[0], 1).flatten(1, 2), w], 1
    return _as_clients(info, in_dims, x, w), 0


def _as_clients(info: Any, in_dims: Any, *tensors: Tensor) -> list[Tensor]:
    """What is not mapped over is repeated."""
    return [
        (t.expand(info.batch_size, *t.shape) if axis is None else t.movedim(axis, 0)).flatten(0, 1)
        for t, axis in zip(tensors, in_dims[:2], strict=True)
    ]
