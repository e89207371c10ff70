"""Metrics as functions of judged samples, with what reports need to know of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from idiolect.evaluation.calibration import expected_calibration_error, in_batches, maximum_calibration_error
from idiolect.evaluation.judged import Judged

__all__ = ["METRICS", "Metric", "accuracy", "cross_entropy", "macro_f1", "per_batch_metrics", "top_k"]


class Metric(NamedTuple):
    """Args:
    function: judged samples -> one value per client.
    low, high: bounds of the value; None where there is none.
    """

    function: Callable[[Judged], Tensor]
    higher_is_better: bool
    low: float | None = 0.0
    high: float | None = 1.0


def top_k(judged: Judged, k: int) -> Tensor:
    """Share of the samples whose label is among the k largest logits; 1 where there are no more than k classes."""
    return judged.mean(judged.ahead < k)


def accuracy(judged: Judged) -> Tensor:
    """Share of the samples whose label has the largest logit."""
    return top_k(judged, 1)


def top_5(judged: Judged) -> Tensor:
    """Share of the samples whose label is among the five largest logits."""
    return top_k(judged, 5)


def macro_f1(judged: Judged) -> Tensor:
    """Mean over classes of 2 TP / (2 TP + FP + FN); a class that is neither held nor guessed does not count."""
    classes = judged.logits.shape[1]
    hits = (judged.guess == judged.labels).double()
    held, guessed = judged.table(judged.labels, classes), judged.table(judged.guess, classes)
    seen = held + guessed
    each = 2 * judged.table(judged.labels, classes, hits) / seen.clamp(min=1)
    return each.sum(1) / (seen > 0).sum(1)


def cross_entropy(judged: Judged) -> Tensor:
    """Mean over the samples of -log softmax(logits)[label]."""
    return judged.mean(judged.surprise)


METRICS = {
    "accuracy": Metric(accuracy, higher_is_better=True),
    "top5": Metric(top_5, higher_is_better=True),
    "macro_f1": Metric(macro_f1, higher_is_better=True),
    "loss": Metric(cross_entropy, higher_is_better=False, high=None),
    "ece": Metric(expected_calibration_error, higher_is_better=False),
    "mce": Metric(maximum_calibration_error, higher_is_better=False),
}


def per_batch_metrics(batch_size: int) -> dict[str, Metric]:
    """The calibration errors averaged over batches, under names of their own."""

    def averaged(metric: Metric) -> Metric:
        return metric._replace(function=lambda judged: in_batches(metric.function, judged, batch_size))

    return {f"{name}_per_batch": averaged(METRICS[name]) for name in ("ece", "mce")}
