"""The metric that the runs of a report are judged by, and how its values are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.statistics import higher_is_better, is_share, primary_metric

__all__ = ["ABSENT", "ACCURACY", "JudgedMetric", "judged_by", "metric_title"]

ABSENT = "-"
PAGE_DIGITS = 6  # significant digits of numbers on the page, and of what text is rounded from
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

    def text(self, value: float) -> str:
        """Returns a value as every table and the page show it: a share in percent with one digit, others with four.

        Halves of the decimal number are rounded away from zero, from the digits that the page holds.

        >>> ACCURACY.text(0.8085), ACCURACY.text(0.99951), JudgedMetric("loss", False, False).text(2.34567)
        ('80.9', '100.0', '2.346')
        """
        return ABSENT if math.isnan(value) else self.scaled_text(self.factor * value)

    def scaled_text(self, shown: float) -> str:
        """Returns the same for a value that is multiplied with ``factor`` already."""
        if not self.is_share:
            return f"{shown:.4g}"
        text = str(Decimal(f"{shown:.{PAGE_DIGITS}g}").quantize(Decimal("0.1"), ROUND_HALF_UP))
        return text if float(text) else "0.0"

    def signed(self, value: float) -> str:
        """Returns a difference as it is shown, with its sign: of shares in points."""
        text = self.text(value)
        return text if text.startswith("-") or text == ABSENT else f"+{text}"

    def difference_text(self, value: float) -> str:
        """Returns the size of a difference with its unit: ``3.1 points``, or ``0.2 loss``."""
        return f"{self.text(value)} {'points' if self.is_share else self.word}"

    def with_spread(self, value: float, spread: float) -> str:
        """Returns a value and, where it is known, the spread of it: ``61.0 ± 0.4``."""
        after = "" if math.isnan(spread) or math.isnan(value) else f" ± {self.text(spread)}"
        return self.text(value) + after


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
