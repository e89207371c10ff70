"""A study: a frozen value that says everything which changes its numbers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Study"]


@dataclass(frozen=True)
class Study:
    """Args:
    observed: how many classes, from the first on, the network is trained on; the others are missing.
    targets: numbers of first classes; the network is scored on the test samples of each such set.
    """

    dataset: str
    model: str
    observed: int
    targets: tuple[int, ...]
    epochs: int
    learning_rate: float
    momentum: float
    weight_decay: float
    batch_size: int
    seed: int = 0
