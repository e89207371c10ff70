"""Metrics as functions of predictions, each with its direction, bounds, unit and the tasks that it serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.core import CLASS_TASKS, OBJECTIVES
from idiolect.errors import UserError, refuse_unknown_choice
from idiolect.evaluation.calibration import expected_calibration_error, in_batches, maximum_calibration_error
from idiolect.evaluation.predictions import Predictions
from idiolect.evaluation.ranking import class_auroc, label_auroc
from idiolect.own_code import load_plugins, source_digest

__all__ = [
    "METRICS",
    "Metric",
    "accuracy",
    "chosen_metrics",
    "cross_entropy",
    "macro_f1",
    "metrics_of",
    "own_sources",
    "per_batch_metrics",
    "register_metric",
    "top_k",
]

UNITS = ("share", "number", "target")


class Metric(NamedTuple):
    """A metric with its direction, its bounds and what it applies to.

    Args:
        function: computes one value per client from predictions; NaN where it is not defined.
        low, high: bounds of the value; None where there is none.
        tasks: those that it serves.
        unit: ``share`` is shown in percent, ``number`` as it is, ``target`` is in the unit of the user's targets.
    """

    function: Callable[[Predictions], Tensor]
    higher_is_better: bool
    low: float | None = 0.0
    high: float | None = 1.0
    tasks: tuple[str, ...] = CLASS_TASKS
    unit: str = "share"


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
    seen = predictions.held + predictions.table(predictions.predicted, predictions.logits.shape[1])
    return _mean_f1(predictions.found, seen)


def balanced_accuracy(predictions: Predictions) -> Tensor:
    """Returns the mean over the classes that a client holds of the share of their samples predicted right."""
    each = predictions.found / predictions.held.clamp(min=1)
    return each.sum(1) / (predictions.held > 0).sum(1)


def cross_entropy(predictions: Predictions) -> Tensor:
    """Returns the mean over samples of -log softmax(logits)[label]."""
    return predictions.mean(predictions.negative_log_likelihood)


def perplexity(predictions: Predictions) -> Tensor:
    """Returns exp of the mean cross-entropy: among how many equally likely tokens the predictor hesitates."""
    return cross_entropy(predictions).exp()


def label_accuracy(predictions: Predictions) -> Tensor:
    """Returns the share of labels, over samples and labels, that are predicted right: 1 - the Hamming loss."""
    right = (predictions.logits > 0) == (predictions.labels > 0)
    return predictions.mean(right.double().mean(1))


def label_f1(predictions: Predictions) -> Tensor:
    """Returns the mean over labels of 2 TP / (2 TP + FP + FN); a label is predicted from probability 1/2.

    Labels that are neither held nor predicted are left out; NaN for a client where that leaves none.
    """
    predicted, labels = predictions.logits > 0, predictions.labels > 0
    seen = predictions.totals(predicted.double() + labels.double())
    return _mean_f1(predictions.totals(predicted & labels), seen)


def label_cross_entropy(predictions: Predictions) -> Tensor:
    """Returns the mean over samples and labels of the binary cross-entropy."""
    each = F.binary_cross_entropy_with_logits(predictions.logits, predictions.labels, reduction="none")
    return predictions.mean(each.mean(1))


def mean_absolute_error(predictions: Predictions) -> Tensor:
    """Returns the mean absolute error in the unit of the targets; the mean over targets where there are several."""
    gaps = (predictions.outputs - predictions.targets).abs()
    return predictions.totals(gaps).mean(1) / predictions.sizes


def root_mean_squared_error(predictions: Predictions) -> Tensor:
    """Returns the root of the mean squared error in the unit of the targets; its mean where there are several."""
    squares = (predictions.outputs - predictions.targets) ** 2
    return (predictions.totals(squares) / predictions.sizes[:, None]).sqrt().mean(1)


def r_squared(predictions: Predictions) -> Tensor:
    """Returns 1 - sum of squared errors / sum of squared deviations from the client's own mean target.

    The mean over the targets that vary at the client; NaN where none does.
    """
    labels, sizes = predictions.labels, predictions.sizes[:, None]
    means = predictions.totals(labels) / sizes.clamp(min=1)
    residual = predictions.totals((predictions.logits - labels) ** 2)
    spread = predictions.totals((labels - means[predictions.owner]) ** 2)
    varies = _varies(predictions)
    return torch.where(varies, 1 - residual / torch.where(varies, spread, 1), torch.nan).nanmean(1)


def squared_error(predictions: Predictions) -> Tensor:
    """Returns what training minimises: the mean squared error of standardised targets."""
    return predictions.mean(((predictions.logits - predictions.labels) ** 2).mean(1))


def _varies(predictions: Predictions) -> Tensor:
    """Returns [clients, K] whether a target takes more than one value at a client."""
    first = torch.cumsum(predictions.sizes, 0) - predictions.sizes
    other = predictions.labels != predictions.labels[first[predictions.owner]]
    return predictions.totals(other) > 0


def _mean_f1(hits: Tensor, seen: Tensor) -> Tensor:
    """Returns [clients] the mean of 2 hits / seen over the columns that are seen."""
    return (2 * hits / seen.clamp(min=1)).sum(1) / (seen > 0).sum(1)


_LABELS, _NUMBERS = ("multilabel",), ("regression",)
_KNOWN: list[tuple[str, Metric]] = [  # one name may stand for one metric of each task
    ("accuracy", Metric(accuracy, higher_is_better=True)),
    ("top5", Metric(top_5, higher_is_better=True)),
    ("macro_f1", Metric(macro_f1, higher_is_better=True)),
    ("balanced_accuracy", Metric(balanced_accuracy, higher_is_better=True)),
    ("loss", Metric(cross_entropy, higher_is_better=False, high=None, unit="number")),
    ("ece", Metric(expected_calibration_error, higher_is_better=False)),
    ("mce", Metric(maximum_calibration_error, higher_is_better=False)),
    ("auroc", Metric(class_auroc, higher_is_better=True)),
    ("perplexity", Metric(perplexity, higher_is_better=False, low=1.0, high=None, unit="number")),
    ("accuracy", Metric(label_accuracy, higher_is_better=True, tasks=_LABELS)),
    ("macro_f1", Metric(label_f1, higher_is_better=True, tasks=_LABELS)),
    ("auroc", Metric(label_auroc, higher_is_better=True, tasks=_LABELS)),
    ("loss", Metric(label_cross_entropy, higher_is_better=False, high=None, tasks=_LABELS, unit="number")),
    ("rmse", Metric(root_mean_squared_error, higher_is_better=False, high=None, tasks=_NUMBERS, unit="target")),
    ("mae", Metric(mean_absolute_error, higher_is_better=False, high=None, tasks=_NUMBERS, unit="target")),
    ("r2", Metric(r_squared, higher_is_better=True, low=None, tasks=_NUMBERS, unit="number")),
    ("loss", Metric(squared_error, higher_is_better=False, high=None, tasks=_NUMBERS, unit="number")),
]  # fmt: skip
BUILT_IN = len(_KNOWN)  # metrics that every process knows; registered ones follow them


def metrics_of(task: str) -> dict[str, Metric]:
    """Returns every metric that a task has, registered ones included."""
    return {name: metric for name, metric in _KNOWN if task in metric.tasks}


def chosen_metrics(task: str, n_classes: int, extra: str = "") -> dict[str, Metric]:
    """Returns the metrics that are recorded: those that the task has by default, and those named in ``extra``.

    Two classes have ``auroc`` by default, whatever the task is called.

    Args:
        extra: names separated by commas.

    Raises:
        UserError: a name is unknown, or stands for a metric of other tasks.
    """
    known, objective = metrics_of(task), OBJECTIVES[task]
    two = ("auroc",) if objective.has_classes and n_classes == 2 else ()
    found = {name: known[name] for name in (*objective.metrics, *two)}
    for name in _names(extra):
        if name not in known:
            load_plugins()
            known = metrics_of(task)
        if name not in known:
            raise _unknown_metric(name, task, known)
        found[name] = known[name]
    return found


def _names(text: str) -> Iterator[str]:
    return (name for name in map(str.strip, text.split(",")) if name)


def _unknown_metric(name: str, task: str, known: dict[str, Metric]) -> UserError:
    served = [other for known_name, metric in _KNOWN if known_name == name for other in metric.tasks]
    if served:
        return UserError(
            f"metrics names {name}, which serves {', '.join(served)} and not {task}; known for {task}: "
            f"{', '.join(known)}"
        )
    near = get_close_matches(name, known, n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return UserError(
        f"metrics names {name!r}, which is no metric; known for {task}: {', '.join(known)}{hint}"
    )


def register_metric(
    name: str,
    function: Callable[[Predictions], Tensor],
    *,
    higher_is_better: bool,
    low: float | None = None,
    high: float | None = None,
    tasks: tuple[str, ...] = CLASS_TASKS,
    unit: str = "number",
) -> None:
    """Makes a metric of your own known by name; runs record it where the setting ``metrics`` names it.

    Args:
        name: lower_snake, not taken yet for one of the tasks.
        function: (Predictions) -> a tensor with one value for each client, NaN where it is not defined.
        higher_is_better, low, high: its direction and bounds; None where there is none.
        tasks: those that it serves.
        unit: ``share`` is shown in percent, ``number`` as it is, ``target`` is in the unit of the targets.

    >>> register_metric("surprise", lambda p: p.mean(p.negative_log_likelihood > 1), higher_is_better=False)
    >>> "surprise" in chosen_metrics("binary", 2, extra="surprise")
    True
    >>> _ = _KNOWN.pop()
    """
    if not name.isidentifier() or name != name.lower():
        raise UserError(f"{name!r} cannot name a metric; use small letters, digits and underscores")
    refuse_unknown_choice("unit", unit, UNITS)
    for task in tasks:
        refuse_unknown_choice("a task of the metric", task, OBJECTIVES)
        if name in metrics_of(task):
            raise UserError(f"{name} is a metric of {task} already; choose another name")
    _KNOWN.append((name, Metric(function, higher_is_better, low, high, tuple(tasks), unit)))


def own_sources(text: str) -> dict[str, str]:
    """Returns, by name, a digest of the text of every registered metric that the setting ``metrics`` names."""
    wanted = set(_names(text))
    found = {name: source_digest(metric.function) for name, metric in _KNOWN if name in wanted}
    return {name: digest for name, digest in found.items() if digest}


METRICS = chosen_metrics("classification", n_classes=10)  # those of most runs


def per_batch_metrics(batch_size: int) -> dict[str, Metric]:
    """Returns the calibration errors averaged over batches, as metrics named `..._per_batch`."""

    def averaged(metric: Metric) -> Metric:
        return metric._replace(
            function=lambda predictions: in_batches(metric.function, predictions, batch_size)
        )

    return {f"{name}_per_batch": averaged(METRICS[name]) for name in ("ece", "mce")}
