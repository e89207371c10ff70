"""Fairness: how a value spreads over clients."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

__all__ = ["fairer", "spread", "worst_tenth"]


def worst_tenth(values: pd.Series) -> float:
    """Mean of the worst tenth of the clients, rounded up to whole clients; NaN for none.

    >>> worst_tenth(pd.Series([0.9, 0.1, 0.3] + [1.0] * 8))
    0.2
    """
    return float(values.nsmallest(math.ceil(len(values) / 10)).mean()) if len(values) else math.nan


def spread(values: pd.Series) -> pd.Series:
    """Mean and spread over clients.

    `sd_ddof0` divides by n (SuPerFed's tables), `sd_ddof1` by n - 1 (PersFL's), NaN for a single client; `decile_1` to
    `decile_9` interpolate linearly, `percentile_10` is the first of them; `worst_tenth` is a mean, see there.

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
    """Whether `one` has the smaller variance over clients (PersFL, eq. 6)."""
    return float(np.var(one.to_numpy(float))) < float(np.var(other.to_numpy(float)))
