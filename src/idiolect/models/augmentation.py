"""Data augmentation: random crop and horizontal flip, as a pure function of the key of the example.

    y[c, i, j] = padded[c, i + a, j' + b],     j' = j or W - 1 - j,     a, b in 0..2*padding

He et al., CVPR 2016, section 4.2 (https://arxiv.org/abs/1512.03385); MAP and FedPHP train on CIFAR-10, CIFAR-100
and CINIC-10 with it.  a, b and the flip are hashes of the key, as the noise of `PlannedDropout`, in a stream
of their own: every engine, device and packing sees the same views.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.models.dropout import planned_uniform

__all__ = ["crop_and_flip"]

_STREAM = 2**31  # beside the dropout layers of a net, which count from 0


def crop_and_flip(x: Tensor, key: Tensor, padding: int = 4, fill: Sequence[float] | None = None) -> Tensor:
    """Moves each image of [B, C, H, W] by at most `padding` pixels, and mirrors every second one.

    Args:
        x: [B, C, H, W].
        key: [B] int64, one per example.
        padding: pixels added on each side before an image of the old size is cut out.
        fill: the value of the added pixels by channel; 0 unless given.  For normalised images, black is
            -mean / std.
    """
    height, width = x.shape[-2:]
    draws = planned_uniform(key, _STREAM, 3).to(torch.float64)  # products below stay exact
    down, right = (draws[:, i : i + 1].mul(2 * padding + 1).long() for i in (0, 1))  # [B, 1]
    rows = down + torch.arange(height, device=x.device)
    columns = torch.arange(width, device=x.device)
    columns = right + torch.where(draws[:, 2:] < 0.5, columns, width - 1 - columns)
    padded = _padded(x, padding, fill)
    cut = padded.gather(2, rows[:, None, :, None].expand(-1, x.shape[1], -1, padded.shape[3]))
    return cut.gather(3, columns[:, None, None, :].expand(-1, x.shape[1], height, -1))


def _padded(x: Tensor, padding: int, fill: Sequence[float] | None) -> Tensor:
    sides = (padding,) * 4
    if fill is None:
        return F.pad(x, sides)
    channels = x.split(1, dim=1)
    return torch.cat([F.pad(c, sides, value=v) for c, v in zip(channels, fill, strict=True)], 1)
