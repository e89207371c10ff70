"""Convolution as one matrix product.

    y[b, o, h, w] = bias[o] + sum_{i, j, c} weight[o, c, i, j] x[b, c, s h + d i - p, s w + d j - p]

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


def plain(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    """The meaning: what ``convolve`` equals."""
    return torch.conv2d(x, weight, bias, stride, padding, dilation)


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    """``plain`` by slices and one product.

    Args:
        x: [B, C, H, W].
        weight: [O, C, kh, kw].
        bias: [O] or None.
    """
    n_out, _, *kernel = weight.shape
    image = F.pad(x, (padding[1], padding[1], padding[0], padding[0])).permute(0, 2, 3, 1)
    height, width = (
        (side - d * (k - 1) - 1) // s + 1
        for side, k, s, d in zip(image.shape[1:3], kernel, stride, dilation, strict=True)
    )
    rows = [slice(i * dilation[0], i * dilation[0] + (height - 1) * stride[0] + 1, stride[0]) for i in range(kernel[0])]
    columns = [slice(j * dilation[1], j * dilation[1] + (width - 1) * stride[1] + 1, stride[1]) for j in range(kernel[1])]
    shifted = torch.cat([image[:, row, column] for row in rows for column in columns], -1)  # [B, h, w, kh kw C]
    matrix = weight.permute(2, 3, 1, 0).reshape(-1, n_out)
    y = (shifted.flatten(0, 2) @ matrix).unflatten(0, shifted.shape[:3])
    return (y if bias is None else y + bias).permute(0, 3, 1, 2)
