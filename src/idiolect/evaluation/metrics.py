"""Metrics as functions of predictions, each with its direction and bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from idiolect.evaluation.calibration import expected_calibration_error, in_batches, maximum_calibration_error
from idiolect.evaluation.predictions import Predictions

__all__ = ["METRICS", "Metric", "accuracy", "cross_entropy", "macro_f1", "per_batch_metrics", "top_k"]


class Metric(NamedTuple):
    """A metric with its direction and bounds.

    Args:
        function: computes one value per client from predictions.
        low, high: bounds of the value; None where there is none.
    """

    function: Callable[[Predictions], Tensor]
    higher_is_better: bool
    low: float | None = 0.0
    high: float | None = 1.0


def top_k(predictions: Predictions, k: int) -> Tensor:
    """Returns the share of samples whose label is among the k largest logits; 1 with at most k classes."""
    return predictions.mean(predictions.label_rank < k)


def accuracy(predictions: Predictions) -> Tensor:
    """Returns the share of samples whose label has the largest logit."""
    return top_k(predictions, 1)


def top_5(predictions: Predictions) -> Tensor:
    """Returns the share of samples whose label is among the five largest logits."""
    return top_k(predictions, 5)


def macro_f1(predictions: Predictions) -> Tensor:
    """Returns the mean over classes of 2 TP / (2 TP + FP + FN), without classes that are neither held nor predicted."""
    classes = predictions.logits.shape[1]
    hits = (predictions.predicted == predictions.labels).double()
    held = predictions.table(predictions.labels, classes)
    seen = held + predictions.table(predictions.predicted, classes)
    each = 2 * predictions.table(predictions.labels, classes, hits) / seen.clamp(min=1)
    return each.sum(1) / (seen > 0).sum(1)


def cross_entropy(predictions: Predictions) -> Tensor:
    """Returns the mean over samples of -log softmax(logits)[label]."""
    return predictions.mean(predictions.negative_log_likelihood)


METRICS = {
    "accuracy": Metric(accuracy, higher_is_better=True),
    "top5": Metric(top_5, higher_is_better=True),
    "macro_f1": Metric(macro_f1, higher_is_better=True),
    "loss": Metric(cross_entropy, higher_is_better=False, high=None),
    "ece": Metric(expected_calibration_error, higher_is_better=False),
    "mce": Metric(maximum_calibration_error, higher_is_better=False),
}


def per_batch_metrics(batch_size: int) -> dict[str, Metric]:
    """Returns the calibration errors averaged over batches, as metrics named `..._per_batch`."""

    def averaged(metric: Metric) -> Metric:
        return metric._replace(
            function=lambda predictions: in_batches(metric.function, predictions, batch_size)
        )

    return {f"{name}_per_batch": averaged(METRICS[name]) for name in ("ece", "mce")}
