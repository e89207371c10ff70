"""Convolution of a cohort without writing its patches down: stride 1, one Triton kernel for all clients.

Where max-pooling follows, only the largest value of each window is written.
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.engines.cohort.differentiable import Convolution, PooledConvolution
from idiolect.engines.cohort.operations import HAS_TRITON

__all__ = ["convolve", "convolve_and_pool", "serves"]

Pair = tuple[int, int]
AMPERE = (8, 0)  # the first GPUs that multiply TF32 and bfloat16
VECTOR = 8  # channels from which they are read side by side


def serves(x: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair) -> bool:
    """Whether the kernel computes this convolution, and in the precision that is allowed."""
    height, width = weight.shape[2:]
    rounded = x.dtype == torch.bfloat16 or (
        x.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    )
    plain = stride == dilation == (1, 1) and height == width > 1 and padding[0] == padding[1] < height
    return x.is_cuda and HAS_TRITON and rounded and plain and torch.cuda.get_device_capability() >= AMPERE


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
    """``torch.conv2d(x, weight, bias, padding=padding)``; under ``vmap`` one kernel for all clients.

    Args:
        x: [B, I, H, W].
        weight: [O, I, side, side].
    """
    image, rows, side = _channels_last(x, weight)
    return Convolution.apply(image, rows, _one(bias), side, padding)[0].permute(0, 3, 1, 2)


def convolve_and_pool(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, pool: int) -> Tensor:
    """``max_pool(convolve(x, weight, bias, padding), pool)`` for windows whose side is a power of two."""
    image, rows, side = _channels_last(x, weight)
    return PooledConvolution.apply(image, rows, _one(bias), side, padding, pool)[0][0].permute(0, 3, 1, 2)


def _channels_last(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, int]:
    """[1, B, H, W, I], [1, O, side side I] and side: one client, which ``vmap`` makes many."""
    image = x.permute(0, 2, 3, 1)
    rows = weight.permute(0, 2, 3, 1).reshape(weight.shape[0], -1)
    return (image.contiguous() if image.shape[-1] >= VECTOR else image)[None], rows[None], weight.shape[-1]


def _one(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias[None]
