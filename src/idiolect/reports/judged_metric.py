"""The metric that the runs of a report are judged by, and how its values are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.statistics import higher_is_better, is_share, primary_metric

__all__ = ["ABSENT", "ACCURACY", "JudgedMetric", "judged_by", "metric_title"]

ABSENT = "-"
WORDS = {
    "accuracy": "accuracy",
    "top5": "top-5 accuracy",
    "macro_f1": "macro F1",
    "balanced_accuracy": "balanced accuracy",
    "auroc": "area under the ROC curve",
    "loss": "loss",
    "perplexity": "perplexity",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "ece": "calibration error (ECE)",
    "mce": "largest calibration error (MCE)",
}


class JudgedMetric(NamedTuple):
    """A metric, which way it is better, and whether its values are shares, which are written in percent."""

    name: str = "accuracy"
    higher_is_better: bool = True
    is_share: bool = True

    @property
    def word(self) -> str:
        """What it is called within a sentence."""
        return WORDS.get(self.name, self.name)

    @property
    def title(self) -> str:
        return metric_title(self.name)

    @property
    def factor(self) -> float:
        """What values are multiplied with to be shown."""
        return 100 if self.is_share else 1

    @property
    def axis(self) -> str:
        """The label of an axis of values."""
        return f"{self.title} (%)" if self.is_share else self.title

    @property
    def change_axis(self) -> str:
        """The label of an axis of differences."""
        return f"Change of {self.word} (points)" if self.is_share else f"Change of {self.word}"

    def heading(self, what: str) -> str:
        """Returns the title of a column, such as ``Global %`` or ``Global RMSE``."""
        named = what if self.name == "accuracy" else f"{what} {self.word}"
        return f"{named} %" if self.is_share else named

    def in_brackets(self, what: str) -> str:
        """Returns the label of an axis for ``what``, such as ``Personalised (%)`` or ``Personalised (RMSE)``."""
        named = what if self.name == "accuracy" else f"{what}, {self.word}"
        return f"{named} (%)" if self.is_share else named

    @property
    def number_format(self) -> str:
        """How a value is written that is multiplied with ``factor`` already."""
        return "{:.1f}" if self.is_share else "{:.4g}"

    def text(self, value: float) -> str:
        """Returns a value as it is shown: a share in percent with one digit, another number with four."""
        return ABSENT if math.isnan(value) else self.number_format.format(self.factor * value)


ACCURACY = JudgedMetric()


def metric_title(name: str) -> str:
    """Returns what a metric is called at the beginning of a line."""
    word = WORDS.get(name, name)
    return word[0].upper() + word[1:] if name in WORDS else name


def judged_by(runs: Iterable[Run]) -> JudgedMetric:
    """Returns the metric that all runs are judged by; accuracy where there is no run.

    Raises:
        UserError: two runs are judged by different metrics.
    """
    found: dict[JudgedMetric, str] = {}
    for run in runs:
        name = primary_metric(run)
        metric = JudgedMetric(name, higher_is_better(run, name), is_share(run, name))
        found.setdefault(metric, str(run.manifest["name"]))
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        raise UserError(
            f"{first} is judged by {one.word} and {second} by {other.word}, which cannot stand in one table; report "
            "them apart"
        )
    return next(iter(found), ACCURACY)
