"""Shapes small enough to try every net of the zoo in float64, and rows of the kind it reads."""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.models import Net, describe

STANDARD = {row.name: row.image_shape for row in describe()}
SMALLER = {
    "resnet20": (3, 8, 8),
    "resnet56": (3, 8, 8),
    "resnet34": (3, 8, 8),
    "leaf_cnn": (1, 8, 8),
    "char_lstm": (1, 1, 6),
}
SHAPES = {name: SMALLER.get(name, shape) for name, shape in STANDARD.items()}
NORMALISED = {name for name in STANDARD if name.endswith("_bn") or name.startswith(("resnet", "mobilenet"))}


def rows_for(net: Net, n: int, shape: tuple[int, int, int]) -> Tensor:
    """Images of noise, or random tokens."""
    if net.vocabulary is not None:
        return torch.randint(net.vocabulary, (n, shape[2]))
    return torch.randn(n, *shape)
