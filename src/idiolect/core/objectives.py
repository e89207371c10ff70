"""Objectives: what a network is trained by and judged by, one for each kind of target.

classification, binary, next_token    y in 0..K-1       -log softmax(z)_y
multilabel                            y in {0, 1}^K     mean_k [log(1 + exp(z_k)) - y_k z_k]
regression                            y in R^K          mean_k (z_k - y_k)^2
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.core.masked_mean import mean_over_rows

__all__ = ["CLASS_TASKS", "OBJECTIVES", "Objective"]


class Objective(NamedTuple):
    """The loss of a task and the metrics that judge it.

    Args:
        loss: (outputs [B, K], targets, mask [B]) -> the mean over the real rows of a batch.
        merit: (outputs [B, K], targets) -> how well each row is predicted [B]; higher is better.
        has_classes: whether each row has one of K classes, so that a softmax of the outputs is its distribution.
        primary: the metric that a method is judged by.
        metrics: the metrics that are recorded by default, the primary first.
    """

    loss: Callable[[Tensor, Tensor, Tensor], Tensor]
    merit: Callable[[Tensor, Tensor], Tensor]
    has_classes: bool
    primary: str
    metrics: tuple[str, ...]


def cross_entropy(outputs: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    return -mean_over_rows(_at_labels(F.log_softmax(outputs, -1), targets), mask)


def hits(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(-1) == targets).to(outputs.dtype)


def binary_cross_entropy(outputs: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    each = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return mean_over_rows(each.mean(-1), mask)


def label_hits(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs > 0) == (targets > 0)).to(outputs.dtype).mean(-1)


def squared_error(outputs: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    return mean_over_rows(((outputs - targets) ** 2).mean(-1), mask)


def nearness(outputs: Tensor, targets: Tensor) -> Tensor:
    return -((outputs - targets) ** 2).mean(-1)


def _at_labels(scores: Tensor, labels: Tensor) -> Tensor:
    """Returns each row's score of its label: [B, K], [B] -> [B].

    On a GPU it works element by element, so that its gradient is fused into the kernels beside it.
    """
    if not scores.is_cuda:
        return scores.gather(-1, labels[:, None]).squeeze(-1)
    is_label = labels[:, None] == torch.arange(scores.shape[-1], device=labels.device)
    return torch.where(is_label, scores, 0).sum(-1)


_CALIBRATED = ("macro_f1", "balanced_accuracy", "loss", "ece", "mce")
OBJECTIVES = {
    "classification": Objective(cross_entropy, hits, True, "accuracy", ("accuracy", "top5", *_CALIBRATED)),
    "binary": Objective(cross_entropy, hits, True, "accuracy", ("accuracy", "auroc", *_CALIBRATED)),
    "next_token": Objective(
        cross_entropy, hits, True, "accuracy", ("accuracy", "top5", "loss", "perplexity")
    ),
    "multilabel": Objective(
        binary_cross_entropy, label_hits, False, "macro_f1", ("macro_f1", "accuracy", "auroc", "loss")
    ),
    "regression": Objective(squared_error, nearness, False, "rmse", ("rmse", "mae", "r2", "loss")),
}  # by the name of the task
CLASS_TASKS = tuple(name for name, objective in OBJECTIVES.items() if objective.has_classes)
