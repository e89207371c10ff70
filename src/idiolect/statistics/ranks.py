"""Ranks of methods over scenarios: Friedman's test and Nemenyi's critical difference.

chi^2_F = 12 N / (k (k + 1)) [sum_j R_j^2 - k (k + 1)^2 / 4],   CD = q_alpha sqrt(k (k + 1) / (6 N))
k methods, N scenarios, R_j the mean rank of a method, q_alpha the studentised range over sqrt(2)
Demsar, JMLR 2006, sections 3.2.2 and 3.2.3
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from idiolect.errors import UserError, refuse_outside
from idiolect.statistics.client_tables import Groups
from idiolect.statistics.measurements import client_scores
from idiolect.statistics.reading import LAST, Reading
from idiolect.statistics.replicates import over_replicates

__all__ = ["Ranking", "average_ranks", "friedman", "nemenyi", "rank_methods", "scenario_table", "together"]


class Ranking(NamedTuple):
    """The ranks of methods, as a critical-difference figure shows them.

    Args:
        ranks: mean rank by method, the best first; 1 is best.
        p_value: of Friedman's test that all methods are alike.
        distance: critical difference at `level`; methods with closer mean ranks do not differ significantly.
        groups: the largest sets of methods without a significant difference, in the order of `ranks`.
    """

    ranks: pd.Series
    scenarios: int
    statistic: float
    p_value: float
    distance: float
    level: float
    groups: list[tuple[str, ...]]


def scenario_table(
    scenarios: Mapping[str, Groups],
    *,
    metric: str | None = None,
    population: str = "all",
    reading: Reading = LAST,
) -> pd.DataFrame:
    """Returns the headline's mean over clients and seeds, with scenarios as rows and methods as columns.

    Raises:
        UserError: a scenario lacks a method that another has.
    """
    table = pd.DataFrame(
        {
            name: {
                label: over_replicates(
                    runs,
                    [
                        float(
                            client_scores(run, metric=metric, population=population, reading=reading).mean()
                        )
                        for run in runs
                    ],
                ).mean
                for label, runs in groups.items()
            }
            for name, groups in scenarios.items()
        }
    ).T
    _refuse_holes(table)
    return table


def average_ranks(scores: pd.DataFrame, *, higher_is_better: bool = True) -> pd.Series:
    """Returns the mean rank of each method over scenarios (rows), the best first; equal scores share their ranks."""
    _refuse_holes(scores)
    return scores.rank(axis=1, ascending=not higher_is_better).mean().sort_values(kind="stable")


def friedman(scores: pd.DataFrame) -> tuple[float, float]:
    """Returns Friedman's statistic, corrected for ties, and its p-value by the chi-squared distribution."""
    _refuse_holes(scores)
    scenarios, methods = scores.shape
    if methods < 3 or scenarios < 2:
        raise UserError(
            f"Friedman's test needs three methods and two scenarios, got {methods} and {scenarios}; "
            "compare two methods with a paired test"
        )
    if (scores.nunique(axis=1) == 1).all():
        return 0.0, 1.0
    found = stats.friedmanchisquare(*(scores[name].to_numpy() for name in scores))
    return float(found.statistic), float(found.pvalue)


def nemenyi(methods: int, scenarios: int, level: float = 0.05) -> float:
    """Returns the critical difference of mean ranks at `level`.

    >>> round(nemenyi(4, 14, 0.05), 2)
    1.25
    """
    refuse_outside("methods", methods, 2)
    refuse_outside("scenarios", scenarios, 1)
    refuse_outside("level", level, 1e-6, 0.5)
    spread = float(stats.studentized_range.ppf(1 - level, methods, np.inf))
    return spread / math.sqrt(2) * math.sqrt(methods * (methods + 1) / (6 * scenarios))


def rank_methods(scores: pd.DataFrame, *, level: float = 0.05, higher_is_better: bool = True) -> Ranking:
    """Ranks methods, tests them by Friedman, and groups those that Nemenyi's test does not separate.

    Args:
        scores: scenarios against methods, as `scenario_table` returns it.
    """
    ranks = average_ranks(scores, higher_is_better=higher_is_better)
    statistic, p_value = friedman(scores)
    distance = nemenyi(scores.shape[1], len(scores), level)
    groups = together(ranks, distance)
    return Ranking(ranks, len(scores), statistic, p_value, distance, level, groups)


def together(ranks: pd.Series, distance: float) -> list[tuple[str, ...]]:
    """Returns the maximal runs of two or more neighbouring ranks that span less than `distance`."""
    values, names, found, reach = ranks.to_numpy(), list(ranks.index), [], 0
    for first in range(len(values)):
        last = int(np.searchsorted(values, values[first] + distance, side="left"))
        if last > max(reach, first + 1):
            found.append(tuple(names[first:last]))
        reach = max(reach, last)
    return found


def _refuse_holes(scores: pd.DataFrame) -> None:
    for scenario, line in scores.iterrows():
        for method in line.index[line.isna()]:
            raise UserError(
                f"{method} has no number in {scenario}; ranks need every method in every scenario"
            )
