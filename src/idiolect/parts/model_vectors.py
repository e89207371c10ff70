"""Models of several clients as the rows of one matrix, for distances and mixtures on the server."""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import Flat

__all__ = ["as_models", "as_vectors", "squared_distances"]


def as_vectors(models: Flat) -> Tensor:
    """Returns stacked models, every leaf [C, ...], as a matrix [C, P]."""
    return torch.cat([leaf.reshape(len(leaf), -1) for leaf in models.values()], 1)


def as_models(vectors: Tensor, like: Flat) -> Flat:
    """Returns the rows of a matrix [C, P] as stacked models, with the names and shapes of one model."""
    sizes = [leaf.numel() for leaf in like.values()]
    pieces = vectors.split(sizes, 1)
    return {name: piece.reshape(-1, *like[name].shape) for name, piece in zip(like, pieces, strict=True)}


def squared_distances(ours: Tensor, theirs: Tensor) -> Tensor:
    """Returns the squared distances between the rows of two matrices, [C, B], exact also where they are near."""
    return torch.cdist(ours, theirs, compute_mode="donot_use_mm_for_euclid_dist") ** 2
