"""Convolution of a cohort without writing its patches down: stride 1, one Triton kernel for all clients.

    y = convolution(x, w)    gradient by x: convolution(g, w turned round)    gradient by w: weight_gradient(x, g)

Both operations are linear in each argument and each other's gradients, so the pair can be differentiated as often
as one likes.  Elsewhere than on CUDA they are computed by ``torch.conv2d``, client by client.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["convolve", "serves"]

Pair = tuple[int, int]
VECTOR = 8  # channels from which they are read side by side


def serves(x: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair) -> bool:
    """Whether the kernel computes this convolution, and in the precision that is allowed."""
    height, width = weight.shape[2:]
    rounded = x.dtype == torch.bfloat16 or (
        x.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    )
    plain = stride == dilation == (1, 1) and height == width > 1 and padding[0] == padding[1] < height
    return x.is_cuda and rounded and plain


def convolve(x: Tensor, weight: Tensor, padding: int) -> Tensor:
    """``torch.conv2d(x, weight, padding=padding)``; under ``vmap`` one kernel for all clients.

    Args:
        x: [B, I, H, W].
        weight: [O, I, side, side].
    """
    n_out, _, side, _ = weight.shape
    rows = weight.permute(0, 2, 3, 1).reshape(n_out, -1)
    image = x.permute(0, 2, 3, 1)
    image = image.contiguous() if image.shape[-1] >= VECTOR else image
    return _Convolution.apply(image, rows, side, padding).permute(0, 3, 1, 2)


class _Convolution(torch.autograd.Function):
    """[B, H, W, I] and [O, side side I] -> [B, H', W', O]."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, side: int, padding: int) -> Tensor:
        return torch.ops.idiolect.convolution(x[None], w[None], side, padding)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, w, ctx.side, ctx.padding = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, w = ctx.saved_tensors
        g = g.contiguous()  # here, where a compiler sees it
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = _Convolution.apply(g, _turned(w, ctx.side), ctx.side, ctx.side - 1 - ctx.padding)
        if ctx.needs_input_grad[1]:
            gw = _WeightGradient.apply(x, g, ctx.side, ctx.padding)
        return gx, gw, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor, side: int, padding: int) -> tuple[Tensor, int]:
        x, w = (_client_first(t, d, info.batch_size) for t, d in zip((x, w), in_dims[:2], strict=True))
        return torch.ops.idiolect.convolution(x, w, side, padding), 0


class _WeightGradient(torch.autograd.Function):
    """[B, H, W, I] and [B, H', W', O] -> [O, side side I]."""

    @staticmethod
    def forward(x: Tensor, g: Tensor, side: int, padding: int) -> Tensor:
        return torch.ops.idiolect.weight_gradient(x[None], g[None], side, padding)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, g, ctx.side, ctx.padding = inputs
        ctx.save_for_backward(x, g)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> Any:
        x, g = ctx.saved_tensors
        gx = gg = None
        if ctx.needs_input_grad[0]:
            gx = _Convolution.apply(g, _turned(u, ctx.side), ctx.side, ctx.side - 1 - ctx.padding)
        if ctx.needs_input_grad[1]:
            gg = _Convolution.apply(x, u, ctx.side, ctx.padding)
        return gx, gg, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, g: Tensor, side: int, padding: int) -> tuple[Tensor, int]:
        x, g = (_client_first(t, d, info.batch_size) for t, d in zip((x, g), in_dims[:2], strict=True))
        return torch.ops.idiolect.weight_gradient(x, g, side, padding), 0


def _turned(w: Tensor, side: int) -> Tensor:
    """The weights that carry a gradient back: taps reversed, input and output swapped."""
    taps = w.unflatten(1, (side, side, -1))  # [O, side, side, I]
    return taps.flip(1, 2).permute(3, 1, 2, 0).flatten(1)


def _client_first(tensor: Tensor, axis: int | None, n_clients: int) -> Tensor:
    return tensor.expand(n_clients, *tensor.shape) if axis is None else tensor.movedim(axis, 0)


@torch.library.custom_op("idiolect::convolution", mutates_args=())
def _convolution(x: Tensor, w: Tensor, side: int, padding: int) -> Tensor:
    """x [C, B, H, W, I], w [C, O, side side I] -> [C, B, H', W', O]."""
    if x.is_cuda and x.dtype != torch.float64:
        from idiolect.layers.triton_kernels import convolution  # noqa: PLC0415  (Triton comes with CUDA)

        return convolution(x, w.contiguous(), side, padding)
    weight = w.unflatten(2, (side, side, -1)).permute(0, 1, 4, 2, 3)
    pairs = zip(x.permute(0, 1, 4, 2, 3), weight, strict=True)
    return torch.stack(
        [torch.conv2d(a, b, padding=padding).permute(0, 2, 3, 1) for a, b in pairs]
    ).contiguous()


@torch.library.custom_op("idiolect::weight_gradient", mutates_args=())
def _weight_gradient(x: Tensor, g: Tensor, side: int, padding: int) -> Tensor:
    """x [C, B, H, W, I], g [C, B, H', W', O] -> [C, O, side side I]."""
    if x.is_cuda and x.dtype != torch.float64:
        from idiolect.layers.triton_kernels import weight_gradient  # noqa: PLC0415

        return weight_gradient(x, g.contiguous(), side, padding)
    shape = (g.shape[-1], x.shape[-1], side, side)
    pairs = zip(x.permute(0, 1, 4, 2, 3), g.permute(0, 1, 4, 2, 3), strict=True)
    found = [torch.nn.grad.conv2d_weight(a, shape, b, padding=padding) for a, b in pairs]
    return torch.stack([w.permute(0, 2, 3, 1).flatten(1) for w in found]).contiguous()


@_convolution.register_fake
def _(x: Tensor, w: Tensor, side: int, padding: int) -> Tensor:
    grown = [n + 2 * padding - side + 1 for n in x.shape[2:4]]
    return x.new_empty(x.shape[0], x.shape[1], *grown, w.shape[1])


@_weight_gradient.register_fake
def _(x: Tensor, g: Tensor, side: int, padding: int) -> Tensor:
    return x.new_empty(x.shape[0], g.shape[-1], side * side * x.shape[-1])
