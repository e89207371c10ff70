"""Max-pooling over windows that do not overlap, as comparisons of the windows' corners.

    y[b, c, h, w] = max_{i, j < k} x[b, c, k h + i, k w + j]

The gradient goes to the first of several largest, as in ``torch.max_pool2d``, whose backward pass scatters; here
forward and backward are elementwise, so that a compiler can fuse them with their neighbours.

Deviations: none in value or gradient; NaN counts as largest, as there.
"""

from __future__ import annotations

from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["max_pool", "plain"]


def plain(x: Tensor, side: int) -> Tensor:
    """The meaning: what ``max_pool`` equals."""
    return F.max_pool2d(x, side)


def max_pool(x: Tensor, side: int) -> Tensor:
    """``plain`` by comparisons; rows and columns that fill no window are left out.

    Args:
        x: [..., H, W].
        side: k >= 1, side of the windows and stride.
    """
    height, width = x.shape[-2] // side, x.shape[-1] // side
    windows = x[..., : height * side, : width * side].unflatten(-1, (width, side)).unflatten(-3, (height, side))
    places = [windows[..., i, :, j] for i in range(side) for j in range(side)]
    return reduce(_larger, places)


def _larger(first: Tensor, second: Tensor) -> Tensor:
    """The second only where it is strictly larger."""
    return torch.where((second > first) | second.isnan(), second, first)
