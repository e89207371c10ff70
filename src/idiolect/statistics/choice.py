"""Choice of the best round or setting, with a word for the data it was chosen on.

A choice made on validation data is called `validated`.  A choice made on the data it is reported on, which are the
clients' test splits or the server's test set, is called `oracle`.  Every result here that chooses something carries
this word.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import pandas as pd

from idiolect.errors import UserError, refuse_unknown_choice
from idiolect.records import Run
from idiolect.statistics.client_tables import Groups
from idiolect.statistics.measurements import client_scores, curve, higher_is_better, primary_metric

__all__ = ["RULES", "Chosen", "best_and_last", "best_round", "best_setting", "pick"]

RULES = {"valid": "validated", "test": "oracle", "server": "oracle"}


class Chosen(NamedTuple):
    """A choice: `which` was chosen by `rule`, and its reported `value`."""

    which: Hashable
    value: float
    rule: str


def pick(criterion: pd.Series, reported: pd.Series, *, split: str, higher_is_better: bool = True) -> Chosen:
    """Returns the entry of `reported` where `criterion` is best, or the first of equals.

    Args:
        criterion: the numbers to choose by, measured on `split`.
        reported: the numbers to report, with the same index.
        split: valid, test or server; it determines the name of the rule.
    """
    refuse_unknown_choice("split", split, RULES)
    if criterion.empty:
        raise UserError(f"there is nothing measured on the split {split!r} to choose by")
    which = criterion.idxmax() if higher_is_better else criterion.idxmin()
    return Chosen(which, float(reported[which]), RULES[split])


def best_round(
    run: Run, predictor: str | None = None, *, chosen_on: str = "valid", metric: str | None = None
) -> Chosen:
    """Returns a predictor's mean test value over all clients in the round that is best on the split `chosen_on`."""
    criterion, reported = (curve(run, predictor, metric=metric, split=split) for split in (chosen_on, "test"))
    return pick(criterion, reported, split=chosen_on, higher_is_better=_is_better_high(run, metric))


def best_and_last(points: pd.Series, *, split: str = "test", higher_is_better: bool = True) -> pd.DataFrame:
    """Returns the best and the last point of a curve measured on `split`, which show its stability.

    Index: `last`, and `best (oracle)` or `best (validated)`; columns `round`, `value`.
    """
    best = pick(points, points, split=split, higher_is_better=higher_is_better)
    last = points.sort_index()
    lines = {
        "last": (last.index[-1], float(last.iloc[-1])),
        f"best ({best.rule})": (best.which, best.value),
    }
    return pd.DataFrame.from_dict(lines, orient="index", columns=["round", "value"])


def best_setting(
    settings: Groups, predictor: str | None = None, *, chosen_on: str = "valid", metric: str | None = None
) -> Chosen:
    """Returns the best of several settings of one method by its final value, mean over clients and seeds.

    MAP's tables report the best of three settings on the test data; ``chosen_on="test"`` does so, as an oracle.
    """

    def final(split: str) -> pd.Series:
        means = {
            label: [float(client_scores(run, predictor, metric=metric, split=split).mean()) for run in runs]
            for label, runs in settings.items()
        }
        return pd.Series({label: sum(values) / len(values) for label, values in means.items()}).dropna()

    better = _is_better_high(next(iter(settings.values()))[0], metric)
    return pick(final(chosen_on), final("test"), split=chosen_on, higher_is_better=better)


def _is_better_high(run: Run, metric: str | None) -> bool:
    return higher_is_better(run, metric or primary_metric(run))
