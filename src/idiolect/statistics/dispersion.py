"""Spread of a value over clients, seeds and settings.

Over clients: how unequally a method serves them.  Over seeds: how much one repetition differs from another.  Over
settings: how much the method depends on its options, which MAP's tables print in brackets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from idiolect.statistics.client_tables import Groups
from idiolect.statistics.measurements import client_scores

__all__ = ["fairer", "spread", "variation", "worst_tenth"]

COLUMNS = ["setting", "over", "count", "sd_ddof0", "sd_ddof1"]


def worst_tenth(values: pd.Series, higher_is_better: bool = True) -> float:
    """Returns the mean of the worst tenth of the clients, rounded up to whole clients; NaN without clients.

    The worst values are the lowest, or the highest of a metric that is better when low.

    >>> worst_tenth(pd.Series([0.9, 0.1, 0.3] + [1.0] * 8))
    0.2
    """
    if not higher_is_better:
        return -worst_tenth(-values)
    return float(values.nsmallest(math.ceil(len(values) / 10)).mean()) if len(values) else math.nan


def spread(values: pd.Series) -> pd.Series:
    """Returns the mean and several measures of spread over clients.

    `sd_ddof0` divides by n (SuPerFed's tables), `sd_ddof1` by n - 1 (PersFL's), NaN for a single client; `decile_1` to
    `decile_9` interpolate linearly, and `percentile_10` is `decile_1`; see `worst_tenth` for the entry of that name.

    >>> spread(pd.Series([0.0, 1.0]))[["mean", "sd_ddof0", "decile_1"]].tolist()
    [0.5, 0.5, 0.1]
    """
    numbers = values.to_numpy(float)
    if not len(numbers):
        numbers = np.array([math.nan])
    deciles = np.quantile(numbers, np.arange(1, 10) / 10)
    found = {
        "clients": len(values),
        "mean": numbers.mean(),
        "sd_ddof0": numbers.std(),
        "sd_ddof1": numbers.std(ddof=1) if len(numbers) > 1 else math.nan,
        "min": numbers.min(),
        "max": numbers.max(),
        "percentile_10": deciles[0],
        "worst_tenth": worst_tenth(values),
    }
    return pd.Series({**found, **{f"decile_{i}": value for i, value in enumerate(deciles, 1)}})


def fairer(one: pd.Series, other: pd.Series) -> bool:
    """Returns whether `one` has the smaller variance over clients (PersFL, eq. 6)."""
    return float(np.var(one.to_numpy(float))) < float(np.var(other.to_numpy(float)))


def variation(
    settings: Groups, predictor: str | None = None, *, metric: str | None = None, population: str = "all"
) -> pd.DataFrame:
    """Returns `setting`, `over`, `count`, `sd_ddof0`, `sd_ddof1`; an SD of fewer than two numbers is NaN.

    For every setting one line over `clients` (the SD within a seed, averaged over seeds) and one over `seeds` (of
    the mean over clients); then one over `settings` (of the mean over clients and seeds), under the setting `all`.
    """
    lines, means = [], []
    for label, runs in settings.items():
        seeds = [
            client_scores(run, predictor, metric=metric, population=population).to_numpy() for run in runs
        ]
        within = [_deviations(values) for values in seeds]
        clients = [float(np.mean(column)) for column in zip(*within, strict=True)]
        lines.append((label, "clients", min(len(values) for values in seeds), *clients))
        by_seed = [float(values.mean()) if len(values) else math.nan for values in seeds]
        lines.append((label, "seeds", len(by_seed), *_deviations(by_seed)))
        means.append(float(np.mean(by_seed)))
    lines.append(("all", "settings", len(means), *_deviations(means)))
    return pd.DataFrame(lines, columns=COLUMNS)


def _deviations(values: Iterable[float]) -> tuple[float, float]:
    numbers = np.asarray(list(values), float)
    if len(numbers) < 2:
        return math.nan, math.nan
    return float(numbers.std()), float(numbers.std(ddof=1))
