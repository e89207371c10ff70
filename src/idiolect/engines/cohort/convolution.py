"""Convolution as one matrix product.

    y[b, o, h, w] = sum_{i, j, c} weight[o, c, i, j] x[b, c, s h + d i - p, s w + d j - p]

with stride s, dilation d and padding p: what ``torch.conv2d`` computes.  Written as shifted slices of the image
laid side by side and one product with the weights, a cohort with weights of its own for every client is one
batched product under ``vmap``; ``torch.conv2d`` becomes a grouped convolution there, which GPUs run slowly.

Deviations: none in value or gradient.  Groups are left to ``torch.conv2d``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["convolve", "plain"]

Pair = tuple[int, int]


def plain(x: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair) -> Tensor:
    """The meaning: what ``convolve`` equals."""
    return torch.conv2d(x, weight, None, stride, padding, dilation)


def convolve(x: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair) -> Tensor:
    """``plain`` by slices and one product.

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
    y = (shifted.flatten(0, 2) @ matrix).unflatten(0, shifted.shape[:3])
    return y.permute(0, 3, 1, 2)


def _shifts(side: int, kernel: int, stride: int, dilation: int) -> list[slice]:
    """What each tap of the kernel sees along one axis."""
    last = (side - dilation * (kernel - 1) - 1) // stride * stride
    return [slice(dilation * tap, dilation * tap + last + 1, stride) for tap in range(kernel)]
