"""Convolutions that batch over clients, each with weights of its own, and their gradients.

    y[b, o, h, w] = sum_{i, j, c} weight[o, c, i, j] x[b, c, s h + d i - p, s w + d j - p]

with stride s, dilation d and padding p: what ``torch.conv2d`` computes.  Under ``vmap`` that becomes a grouped
convolution, which GPUs run slowly.  There are two forms here, equal to it in value and gradient, without groups:

- ``convolve_by_slices`` lays shifted slices of the image side by side and takes one product with the weights, which
  is one batched product under ``vmap``.
- ``convolve_by_kernel`` is one operator for all clients, a Triton kernel on CUDA, which never writes the slices down;
  stride and dilation are 1.  ``convolve_and_pool`` also writes only the largest value of each pooling window.

The gradients of the second form are convolutions and products of the same kind, so that they can be differentiated any
number of times.  Its operators have an axis of clients C, which every ``vmap`` makes longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_weight

from idiolect.engines.cohort.cuda.kernels import HAS_TRITON
from idiolect.engines.cohort.cuda.kernels.tiles import count_parts
from idiolect.engines.cohort.pooling import unpool

__all__ = ["convolve_and_pool", "convolve_by_kernel", "convolve_by_slices", "kernel_serves", "plain"]

Pair = tuple[int, int]
AMPERE = (8, 0)  # compute capability of the first GPUs that multiply TF32 and bfloat16
VECTOR = 8  # channels from which a kernel reads several at once


def plain(x: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair) -> Tensor:
    """Computes in PyTorch what both forms compute."""
    return torch.conv2d(x, weight, None, stride, padding, dilation)


def convolve_by_slices(x: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair) -> Tensor:
    """Convolves by shifted slices and one matrix product.

    Args:
        x: [B, C, H, W].
        weight: [O, C, kh, kw].
    """
    n_out, _, *kernel = weight.shape
    image = F.pad(x, (padding[1], padding[1], padding[0], padding[0])).permute(0, 2, 3, 1)
    rows, columns = (
        _shifts(side, k, s, d)
        for side, k, s, d in zip(image.shape[1:3], kernel, stride, dilation, strict=True)
    )
    shifted = torch.cat(
        [image[:, row, column] for row in rows for column in columns], -1
    )  # [B, h, w, kh kw C]
    matrix = weight.permute(2, 3, 1, 0).reshape(-1, n_out)
    y = torch.unflatten(shifted.flatten(0, 2) @ matrix, 0, shifted.shape[:3])
    return y.permute(0, 3, 1, 2)


def _shifts(side: int, kernel: int, stride: int, dilation: int) -> list[slice]:
    """Returns the slice that each tap of the kernel sees along one axis."""
    last = (side - dilation * (kernel - 1) - 1) // stride * stride
    return [slice(dilation * tap, dilation * tap + last + 1, stride) for tap in range(kernel)]


def kernel_serves(x: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair) -> bool:
    """Returns whether the Triton kernel computes this convolution, and in a precision that is allowed."""
    height, width = weight.shape[2:]
    rounded = x.dtype == torch.bfloat16 or (
        x.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    )
    plain = stride == dilation == (1, 1) and height == width > 1 and padding[0] == padding[1] < height
    return x.is_cuda and HAS_TRITON and rounded and plain and torch.cuda.get_device_capability() >= AMPERE


def convolve_by_kernel(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
    """Computes ``torch.conv2d(x, weight, bias, padding=padding)``; under ``vmap`` as one kernel for all clients.

    Args:
        x: [B, I, H, W].
        weight: [O, I, side, side].
    """
    image, rows, side = _channels_last(x, weight)
    return _convolve_clients(image, rows, _one(bias), side, padding)[0].permute(0, 3, 1, 2)


def convolve_and_pool(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, pool: int) -> Tensor:
    """Computes ``max_pool(convolve_by_kernel(...), pool)`` for windows whose side is a power of two."""
    image, rows, side = _channels_last(x, weight)
    y, _ = _convolve_and_pool_clients(image, rows, _one(bias), side, padding, pool)
    return y[0].permute(0, 3, 1, 2)


def _channels_last(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, int]:
    """Returns [1, B, H, W, I], [1, O, side side I] and side: one client, which ``vmap`` makes many."""
    image = x.permute(0, 2, 3, 1)
    rows = weight.permute(0, 2, 3, 1).reshape(weight.shape[0], -1)
    return (image.contiguous() if image.shape[-1] >= VECTOR else image)[None], rows[None], weight.shape[-1]


def _one(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias[None]


class CohortConvolution(torch.autograd.Function):
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
        x, w = ctx.saved_tensors
        return *_backward(ctx, x, w, g.contiguous()), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor, b: Tensor | None, *options: int) -> Any:
        given, axis = _joined(info, in_dims, x, w, b)
        return torch.unflatten(_convolve_clients(*given, *options), axis, (info.batch_size, -1)), axis


class PooledCohortConvolution(torch.autograd.Function):
    """The same with the largest values [C, B, h, w, O], and which place of its window each came from."""

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
        return *_backward(ctx, x, w, torch.unflatten(whole, 0, g.shape[:2])), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor, b: Tensor | None, *options: int) -> Any:
        given, axis = _joined(info, in_dims, x, w, b)
        found = _convolve_and_pool_clients(*given, *options)
        return tuple(torch.unflatten(t, axis, (info.batch_size, -1)) for t in found), (axis, axis)


class _ConvolutionGradients(torch.autograd.Function):
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
        by_x = _gradient_by_x(g, by_gw, *options)
        by_w, by_g = None, _convolve_clients(x, by_gw, by_gb, *options)
        if ctx.by_x:
            by_w = _gradients_of_clients(by_gx, w, g, *options, False)[1]
            by_g = by_g + _convolve_clients(by_gx, w, None, *options)
        return by_x, by_w, by_g, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor, g: Tensor, *options: Any) -> Any:
        found = _gradients_of_clients(*_as_clients(info, in_dims, x, w, g), *options)
        return tuple(torch.unflatten(t, 0, (info.batch_size, -1)) for t in found), (0, 0, 0)


_convolve_clients: Callable[..., Tensor] = CohortConvolution.apply
_convolve_and_pool_clients: Callable[..., tuple[Tensor, Tensor]] = PooledCohortConvolution.apply
_gradients_of_clients: Callable[..., tuple[Tensor, Tensor, Tensor]] = _ConvolutionGradients.apply


def _shifted(y: Tensor, b: Tensor | None) -> Tensor:
    return y if b is None else y + b[:, None, None, None]


def _backward(ctx: Any, x: Tensor, w: Tensor, g: Tensor) -> tuple[Tensor | None, ...]:
    """Returns the gradients by x, w and b of a convolution whose result has the gradient g."""
    asked = by_x, by_w, by_b = ctx.needs_input_grad[:3]
    if not (by_w or by_b):
        return _gradient_by_x(g, w, ctx.side, ctx.padding), None, None
    found = _gradients_of_clients(x, w, g, ctx.side, ctx.padding, by_x)
    return tuple(t if is_asked else None for t, is_asked in zip(found, asked, strict=True))


def _gradient_by_x(g: Tensor, w: Tensor, side: int, padding: int) -> Tensor:
    return _convolve_clients(g, _backward_weights(w, side), None, side, side - 1 - padding)


def _joined(
    info: Any, in_dims: Any, x: Tensor, w: Tensor, b: Tensor | None
) -> tuple[list[Tensor | None], int]:
    """Joins the axis that is mapped over to that of rows where weights are shared, else to that of clients."""
    if in_dims[1] is None and (b is None or in_dims[2] is None):
        return [x.movedim(in_dims[0], 1).flatten(1, 2), w, b], 1
    return _as_clients(info, in_dims, x, w, b), 0


def _as_clients(info: Any, in_dims: Any, *tensors: Tensor | None) -> list[Tensor | None]:
    """Joins the axis that is mapped over to that of clients; what is not mapped over is repeated."""
    return [
        t
        if t is None
        else (t.expand(info.batch_size, *t.shape) if axis is None else t.movedim(axis, 0)).flatten(0, 1)
        for t, axis in zip(tensors, in_dims[: len(tensors)], strict=True)
    ]


def _by_kernel(x: Tensor) -> bool:
    return x.is_cuda and x.dtype != torch.float64 and HAS_TRITON


def _backward_weights(w: Tensor, side: int) -> Tensor:
    """Returns the weights that carry a gradient back [C, I, side side O]: taps reversed, input and output swapped."""
    taps = torch.unflatten(w, 2, (side, side, -1))  # [C, O, side, side, I]
    return taps.flip(2, 3).permute(0, 4, 2, 3, 1).flatten(2)


def _contiguous_rows(w: Tensor) -> Tensor:
    """Returns the weights, contiguous for each client; clients may lie apart."""
    return w if w.stride()[1:] == (w.shape[2], 1) else w.contiguous()


@torch.library.custom_op("idiolect::convolution", mutates_args=())
def _convolution(x: Tensor, w: Tensor, side: int, padding: int) -> Tensor:
    """x [C, B, H, W, I], w [C, O, side side I] -> [C, B, H', W', O]."""
    if _by_kernel(x):
        from idiolect.engines.cohort.cuda.kernels.convolution import convolution  # noqa: PLC0415

        return convolution(x, _contiguous_rows(w), side, padding)[0]
    weight = torch.unflatten(w, 2, (side, side, -1)).permute(0, 1, 4, 2, 3)
    pairs = zip(x.permute(0, 1, 4, 2, 3), weight, strict=True)
    return torch.stack(
        [torch.conv2d(a, b, padding=padding).permute(0, 2, 3, 1) for a, b in pairs]
    ).contiguous()


@_convolution.register_fake
def _(x: Tensor, w: Tensor, side: int, padding: int) -> Tensor:
    return x.new_empty(*x.shape[:2], *(n + 2 * padding - side + 1 for n in x.shape[2:4]), w.shape[1])


@torch.library.custom_op("idiolect::pooled_convolution", mutates_args=())
def _pooled_convolution(x: Tensor, w: Tensor, side: int, padding: int, pool: int) -> tuple[Tensor, Tensor]:
    """The same with the largest value of each window, and which place of it that is."""
    if _by_kernel(x):
        from idiolect.engines.cohort.cuda.kernels.convolution import convolution  # noqa: PLC0415

        return convolution(x, _contiguous_rows(w), side, padding, pool)
    y = _convolution(x, w, side, padding)
    largest, index = F.max_pool2d(y.flatten(0, 1).permute(0, 3, 1, 2), pool, return_indices=True)
    row, column = index // y.shape[3], index % y.shape[3]
    winner = (row % pool * pool + column % pool).to(torch.uint8)
    found = [torch.unflatten(t.permute(0, 2, 3, 1), 0, y.shape[:2]).contiguous() for t in (largest, winner)]
    return found[0], found[1]


@_pooled_convolution.register_fake
def _(x: Tensor, w: Tensor, side: int, padding: int, pool: int) -> tuple[Tensor, Tensor]:
    size = [(n + 2 * padding - side + 1) // pool for n in x.shape[2:4]]
    y = x.new_empty(*x.shape[:2], *size, w.shape[1])
    return y, torch.empty_like(y, dtype=torch.uint8)


@torch.library.custom_op("idiolect::gradients", mutates_args=())
def _gradients(
    x: Tensor, w: Tensor | None, g: Tensor, side: int, padding: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a convolution by x, weights and bias, from that by its result, g [C, B, H', W', O].

    Args:
        w: the weights [C, O, side side I]; without them the gradient by x is empty.

    Returns:
        [C, B, H, W, I], [P, C, O, side side I] and [P, C, O]: the latter are sums of P parts, which the caller adds up,
        so that a compiler can do more in the same kernel.
    """
    if _by_kernel(x):
        from idiolect.engines.cohort.cuda.kernels.convolution import gradients  # noqa: PLC0415

        return gradients(x, w if w is None else _contiguous_rows(w), g.contiguous(), side, padding)
    shape = (g.shape[-1], x.shape[-1], side, side)
    pairs = zip(x.permute(0, 1, 4, 2, 3), g.permute(0, 1, 4, 2, 3), strict=True)
    differentiate: Callable[..., Tensor] = conv2d_weight
    found = [differentiate(a, shape, b, padding=padding) for a, b in pairs]
    by_weights = torch.stack([one.permute(0, 2, 3, 1).flatten(1) for one in found])
    by_x = (
        x.new_empty(0) if w is None else _convolution(g, _backward_weights(w, side), side, side - 1 - padding)
    )
    return by_x, by_weights[None].contiguous(), g.sum((1, 2, 3))[None]


@_gradients.register_fake
def _(x: Tensor, w: Tensor | None, g: Tensor, side: int, padding: int) -> tuple[Tensor, Tensor, Tensor]:
    n_parts, dtype = (count_parts(x, g, side), torch.float32) if _by_kernel(x) else (1, x.dtype)
    size = (n_parts, x.shape[0], g.shape[-1])
    by_weights = x.new_empty(*size, side * side * x.shape[-1], dtype=dtype)
    return x.new_empty(0 if w is None else x.shape), by_weights, x.new_empty(size, dtype=dtype)
