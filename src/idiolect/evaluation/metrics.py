"""Metrics as functions of logits and labels, with what reports need to know of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

__all__ = ["METRICS", "Metric", "accuracy", "cross_entropy"]


class Metric(NamedTuple):
    function: Callable[[Tensor, Tensor], float]  # logits [n, K], labels [n]
    higher_is_better: bool


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Share of the samples whose label has the largest logit."""
    return float((logits.argmax(-1) == labels).double().mean())


def cross_entropy(logits: Tensor, labels: Tensor) -> float:
    """Mean over the samples of -log softmax(logits)[label]."""
    return float(F.cross_entropy(logits.double(), labels))


METRICS = {"accuracy": Metric(accuracy, True), "loss": Metric(cross_entropy, False)}
