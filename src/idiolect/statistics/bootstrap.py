"""Confidence intervals by the percentile bootstrap, over clients or over seeds.

Each resample draws as many units as there are, with replacement; the interval lies between two quantiles of the
statistic.
Efron, Annals of Statistics 1979
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.statistics.client_tables import Groups, client_table
from idiolect.statistics.measurements import client_scores

__all__ = ["Interval", "Resampling", "bootstrap_interval", "intervals"]

AT_ONCE = 4_000_000  # draws in memory at a time


class Interval(NamedTuple):
    """A statistic of `units` values and its confidence interval, whose bounds are NaN for a single value."""

    value: float
    low: float
    high: float
    units: int


@dataclass(frozen=True)
class Resampling:
    """How an interval is drawn; the same seed gives the same interval.

    Args:
        level: probability that the interval stands for.
        resamples: how many times the units are drawn.
    """

    level: float = 0.95
    resamples: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        refuse_outside("level", self.level, 0, 1)
        refuse_outside("resamples", self.resamples, 1)


STANDARD = Resampling()


def bootstrap_interval(
    values: Sequence[float] | pd.Series | np.ndarray,
    resampling: Resampling = STANDARD,
    *,
    statistic: Callable[..., Any] = np.mean,
) -> Interval:
    """Returns the percentile interval of a statistic.

    Args:
        statistic: a function of an array and ``axis``, such as ``numpy.mean``.
    """
    level, resamples = resampling.level, resampling.resamples
    numbers = np.asarray(values, float)
    units = len(numbers)
    if units < 2:
        return Interval(float(numbers[0]) if units else math.nan, math.nan, math.nan, units)
    random, found, chunk = np.random.default_rng(resampling.seed), [], max(1, AT_ONCE // units)
    for first in range(0, resamples, chunk):
        drawn = random.integers(units, size=(min(chunk, resamples - first), units))
        found.append(statistic(numbers[drawn], axis=1))
    low, high = np.quantile(np.concatenate(found), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(statistic(numbers, axis=0)), float(low), float(high), units)


def intervals(
    groups: Groups,
    predictor: str | None = None,
    *,
    over: str = "clients",
    metric: str | None = None,
    population: str = "all",
    resampling: Resampling = STANDARD,
) -> pd.DataFrame:
    """Returns one row per method: `method`, `over`, `units`, `mean`, `low`, `high`, `level`.

    Args:
        over: ``clients`` resamples clients, after averaging over each client's seeds; ``seeds`` resamples seeds,
            after averaging over each seed's clients.
    """
    refuse_unknown_choice("over", over, ("clients", "seeds"))
    lines = []
    for label, runs in groups.items():
        if over == "clients":
            units = client_table({label: runs}, predictor, metric=metric, population=population)[
                label
            ].to_numpy()
        else:
            by_run = (client_scores(run, predictor, metric=metric, population=population) for run in runs)
            units = np.array([values.mean() for values in by_run])
        found = bootstrap_interval(units, resampling)
        lines.append((label, over, found.units, found.value, found.low, found.high, resampling.level))
    return pd.DataFrame(lines, columns=["method", "over", "units", "mean", "low", "high", "level"])
