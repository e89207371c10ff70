"""Standard deviations, each with the name of what it is over: clients, seeds, or settings.

Over clients: how unequally a method serves them.  Over seeds: how much a repetition differs.  Over settings: how much
the method depends on its options, which is what MAP's tables print in brackets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from idiolect.statistics.measurements import client_scores
from idiolect.statistics.users import Groups

__all__ = ["variation"]

COLUMNS = ["setting", "over", "count", "sd_ddof0", "sd_ddof1"]


def variation(
    settings: Groups, predictor: str | None = None, *, metric: str = "accuracy", population: str = "all"
) -> pd.DataFrame:
    """Columns `setting`, `over`, `count`, `sd_ddof0`, `sd_ddof1`; an SD of fewer than two numbers is NaN.

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
