"""The operations of a cohort's convolutions with their gradients.

    y = convolution(x, w) + b,  pooled or not        gradients by x, w and b: one kernel, from that by y

Gradients are convolutions and products of the same kind, so they can be differentiated as often as one likes.  All
carry an axis of clients; ``vmap``, however often, makes it longer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from idiolect.engines.cohort.operations import turned
from idiolect.engines.cohort.pooling import unpool

__all__ = ["Convolution", "PooledConvolution"]


class Convolution(torch.autograd.Function):
    """[C, B, H, W, I], [C, O, side side I] and [C, O] or None -> [C, B, H', W', O]."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, b: Tensor | None, side: int, padding: int) -> Tensor:
        return _shifted(torch.ops.idiolect.convolution(x, w, side, padding), b)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, w, _, ctx.side, ctx.padding = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return *_backward(ctx, *ctx.saved_tensors, g.contiguous()), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor, b: Tensor | None, *options: int) -> Any:
        given, axis = _joined(info, in_dims, x, w, b)
        return Convolution.apply(*given, *options).unflatten(axis, (info.batch_size, -1)), axis


class PooledConvolution(torch.autograd.Function):
    """The same with [C, B, h, w, O] largest values, and which place of its window each came from."""

    @staticmethod
    def forward(
        x: Tensor, w: Tensor, b: Tensor | None, side: int, padding: int, pool: int
    ) -> tuple[Tensor, Tensor]:
        y, winner = torch.ops.idiolect.pooled_convolution(x, w, side, padding, pool)
        return _shifted(y, b), winner

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, w, _, ctx.side, ctx.padding, ctx.pool = inputs
        ctx.size = tuple(n + 2 * ctx.padding - ctx.side + 1 for n in x.shape[2:4])
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, w, output[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Any:
        x, w, winner = ctx.saved_tensors
        whole = unpool(g.flatten(0, 1), winner.flatten(0, 1), ctx.pool, ctx.size)
        return *_backward(ctx, x, w, whole.unflatten(0, g.shape[:2])), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor, b: Tensor | None, *options: int) -> Any:
        given, axis = _joined(info, in_dims, x, w, b)
        found = PooledConvolution.apply(*given, *options)
        return tuple(t.unflatten(axis, (info.batch_size, -1)) for t in found), (axis, axis)


class _Gradients(torch.autograd.Function):
    """[C, B, H, W, I], [C, O, side side I], [C, B, H', W', O] -> the like of the first two, and [C, O].

    Without ``by_x`` the first is empty.
    """

    @staticmethod
    def forward(
        x: Tensor, w: Tensor, g: Tensor, side: int, padding: int, by_x: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        gx, gw, gb = torch.ops.idiolect.gradients(x, w if by_x else None, g, side, padding)
        return gx, gw.sum(0).to(x.dtype), gb.sum(0).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, w, g, ctx.side, ctx.padding, ctx.by_x = inputs
        ctx.save_for_backward(x, w, g)

    @staticmethod
    def backward(ctx: Any, by_gx: Tensor, by_gw: Tensor, by_gb: Tensor) -> Any:
        (x, w, g), options = ctx.saved_tensors, (ctx.side, ctx.padding)
        by_x = _carried_back(g, by_gw, *options)
        by_w, by_g = None, Convolution.apply(x, by_gw, by_gb, *options)
        if ctx.by_x:
            by_w = _Gradients.apply(by_gx, w, g, *options, False)[1]
            by_g = by_g + Convolution.apply(by_gx, w, None, *options)
        return by_x, by_w, by_g, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor, g: Tensor, *options: Any) -> Any:
        found = _Gradients.apply(*_as_clients(info, in_dims, x, w, g), *options)
        return tuple(t.unflatten(0, (info.batch_size, -1)) for t in found), (0, 0, 0)


def _shifted(y: Tensor, b: Tensor | None) -> Tensor:
    return y if b is None else y + b[:, None, None, None]


def _backward(ctx: Any, x: Tensor, w: Tensor, g: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients by x, w and b of a convolution whose result has the gradient g."""
    asked = by_x, by_w, by_b = ctx.needs_input_grad[:3]
    if not (by_w or by_b):
        return _carried_back(g, w, ctx.side, ctx.padding), None, None
    found = _Gradients.apply(x, w, g, ctx.side, ctx.padding, by_x)
    return tuple(t if is_asked else None for t, is_asked in zip(found, asked, strict=True))


def _carried_back(g: Tensor, w: Tensor, side: int, padding: int) -> Tensor:
    """The gradient by x."""
    return Convolution.apply(g, turned(w, side), None, side, side - 1 - padding)


def _joined(
    info: Any, in_dims: Any, x: Tensor, w: Tensor, b: Tensor | None
) -> tuple[list[Tensor | None], int]:
    """The axis that is mapped over joined to that of rows where weights are shared, else to that of clients."""
    if in_dims[1] is None and (b is None or in_dims[2] is None):
        return [x.movedim(in_dims[0], 1).flatten(1, 2), w, b], 1
    return _as_clients(info, in_dims, x, w, b), 0


def _as_clients(info: Any, in_dims: Any, *tensors: Tensor | None) -> list[Tensor | None]:
    """What is not mapped over is repeated."""
    return [
        t
        if t is None
        else (t.expand(info.batch_size, *t.shape) if axis is None else t.movedim(axis, 0)).flatten(0, 1)
        for t, axis in zip(tensors, in_dims[: len(tensors)], strict=True)
    ]
