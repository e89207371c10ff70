"""The operations of a whole cohort that PyTorch sees as one: Triton kernels on CUDA, PyTorch's own elsewhere."""

from __future__ import annotations

from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.engines.cohort.cuda.kernels.tiles import count_parts

__all__ = ["HAS_TRITON", "turned", "unpool_plainly"]

HAS_TRITON = find_spec("triton") is not None  # it comes with PyTorch's builds for CUDA


def _by_kernel(x: Tensor) -> bool:
    return x.is_cuda and x.dtype != torch.float64 and HAS_TRITON


def turned(w: Tensor, side: int) -> Tensor:
    """The weights that carry a gradient back [C, I, side side O]: taps reversed, input and output swapped."""
    taps = w.unflatten(2, (side, side, -1))  # [C, O, side, side, I]
    return taps.flip(2, 3).permute(0, 4, 2, 3, 1).flatten(2)


def _rows(w: Tensor) -> Tensor:
    """Each client's weights without gaps; clients may lie apart."""
    return w if w.stride()[1:] == (w.shape[2], 1) else w.contiguous()


@torch.library.custom_op("idiolect::convolution", mutates_args=())
def _convolution(x: Tensor, w: Tensor, side: int, padding: int) -> Tensor:
    """x [C, B, H, W, I], w [C, O, side side I] -> [C, B, H', W', O]."""
    if _by_kernel(x):
        from idiolect.engines.cohort.cuda.kernels.launch import convolution  # noqa: PLC0415

        return convolution(x, _rows(w), side, padding)[0]
    weight = w.unflatten(2, (side, side, -1)).permute(0, 1, 4, 2, 3)
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
        from idiolect.engines.cohort.cuda.kernels.launch import convolution  # noqa: PLC0415

        return convolution(x, _rows(w), side, padding, pool)
    y = _convolution(x, w, side, padding)
    largest, index = F.max_pool2d(y.flatten(0, 1).permute(0, 3, 1, 2), pool, return_indices=True)
    row, column = index // y.shape[3], index % y.shape[3]
    winner = (row % pool * pool + column % pool).to(torch.uint8)
    found = [t.permute(0, 2, 3, 1).unflatten(0, y.shape[:2]).contiguous() for t in (largest, winner)]
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
        [C, B, H, W, I], [P, C, O, side side I] and [P, C, O]: the latter are sums of P parts; whoever adds them up can
        do more in the same kernel.
    """
    if _by_kernel(x):
        from idiolect.engines.cohort.cuda.kernels.launch import gradients  # noqa: PLC0415

        return gradients(x, w if w is None else _rows(w), g.contiguous(), side, padding)
    shape = (g.shape[-1], x.shape[-1], side, side)
    pairs = zip(x.permute(0, 1, 4, 2, 3), g.permute(0, 1, 4, 2, 3), strict=True)
    found = [torch.nn.grad.conv2d_weight(a, shape, b, padding=padding) for a, b in pairs]
    by_weights = torch.stack([one.permute(0, 2, 3, 1).flatten(1) for one in found])
    by_x = x.new_empty(0) if w is None else _convolution(g, turned(w, side), side, side - 1 - padding)
    return by_x, by_weights[None].contiguous(), g.sum((1, 2, 3))[None]


@_gradients.register_fake
def _(x: Tensor, w: Tensor | None, g: Tensor, side: int, padding: int) -> tuple[Tensor, Tensor, Tensor]:
    n_parts, dtype = (count_parts(x, g, side), torch.float32) if _by_kernel(x) else (1, x.dtype)
    size = (n_parts, x.shape[0], g.shape[-1])
    by_weights = x.new_empty(*size, side * side * x.shape[-1], dtype=dtype)
    return x.new_empty(0 if w is None else x.shape), by_weights, x.new_empty(size, dtype=dtype)


def unpool_plainly(g: Tensor, winner: Tensor, side: int, height: int, width: int) -> Tensor:
    """The meaning of ``unpool``; a compiler can make it part of the kernel before."""
    place = torch.arange(side * side, dtype=torch.uint8, device=g.device).view(side, 1, side, 1)
    spread = torch.where(winner[:, :, None, :, None] == place, g[:, :, None, :, None], 0)
    inner = spread.flatten(3, 4).flatten(1, 2)
    return F.pad(inner, (0, 0, 0, width - inner.shape[2], 0, height - inner.shape[1])).contiguous()


@torch.library.custom_op("idiolect::unpool", mutates_args=())
def _unpool(g: Tensor, winner: Tensor, side: int, height: int, width: int) -> Tensor:
    """g, winner [N, h, w, C] -> [N, H, W, C], zero but for each value at the place of its window that won."""
    if g.is_cuda and HAS_TRITON:
        from idiolect.engines.cohort.cuda.kernels.launch import unpool  # noqa: PLC0415

        return unpool(g.contiguous(), winner.contiguous(), side, height, width)
    return unpool_plainly(g, winner, side, height, width)


@_unpool.register_fake
def _(g: Tensor, winner: Tensor, side: int, height: int, width: int) -> Tensor:
    return g.new_empty(g.shape[0], height, width, g.shape[3])
