"""Intervals of a method's mean and paired comparisons of methods, by the design of their seeds.

A *replicate* is a run's (data_seed, seed).  What varies between the replicates of a method decides what an interval
must count:

    one      one run: no interval and no verdict, since nothing says how much another seed would differ
    redrawn  every run has a partition of its own: means of the runs are independent units, Student's t
    fixed    one partition, several seeds: seed and client are crossed random effects
    nested   several partitions, some with several seeds: the mean within a partition is the unit, Student's t

Verdicts need three units (seeds, or partitions where they are nested).  `idiolect.statistics.inference` has the
equations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from idiolect.errors import UserError, unknown_name
from idiolect.records import Run
from idiolect.statistics.client_tables import Groups, refuse_other_metrics
from idiolect.statistics.inference import (
    FEWEST_UNITS,
    Array,
    MeanError,
    bounds,
    crossed_mean,
    detectable_effect,
    holm,
    studentised_bootstrap,
    two_sided_p,
    unit_mean,
)
from idiolect.statistics.measurements import client_scores, metric_bounds, primary_metric
from idiolect.statistics.reading import LAST, Reading
from idiolect.statistics.replicates import Replicate, design_of, replicate_of

__all__ = [
    "PAIR_COLUMNS",
    "Estimate",
    "Values",
    "compare_scores",
    "estimate",
    "mean_estimate",
    "mean_estimates",
    "paired_comparisons",
]

PAIR_COLUMNS = [
    "method",
    "other",
    "clients",
    "seeds",
    "design",
    "difference",
    "low",
    "high",
    "p",
    "p_holm",
    "detectable",
    "bootstrap_low",
    "bootstrap_high",
]
Values = Mapping[Replicate, pd.Series]  # for each replicate, a value by client


class Estimate(NamedTuple):
    """A mean over seeds and clients with its 95 % interval; what cannot be known is NaN.

    Args:
        clients: the largest number of clients of a replicate.
        seeds: how many replicates.
        design: one, redrawn, fixed or nested.
        low, high: Student's interval; NaN with fewer than three units.
        se, df: standard error and its degrees of freedom; NaN for one run.
        p: two-sided p-value of the mean being 0; NaN with fewer than three units.
        detectable: the smallest difference from 0 that a test at 5 % finds with probability 80 %.  For one run it is a
            lower bound, made from the clients alone as if seeds did not vary.
        bootstrap_low, bootstrap_high: a second interval, from ten independent units on.
    """

    value: float
    clients: int
    seeds: int
    design: str
    low: float = math.nan
    high: float = math.nan
    se: float = math.nan
    df: float = math.nan
    p: float = math.nan
    detectable: float = math.nan
    bootstrap_low: float = math.nan
    bootstrap_high: float = math.nan

    def within(self, least: float, greatest: float) -> Estimate:
        """Returns the same with intervals that end where the metric does, since no mean lies beyond.

        An interval covers what it covered before; NaN stays NaN.

        >>> Estimate(0.9, 5, 3, "redrawn", low=0.7, high=1.1).within(0, 1).high
        1.0
        """
        ends = (self.low, self.high, self.bootstrap_low, self.bootstrap_high)
        low, high, bootstrap_low, bootstrap_high = (float(np.clip(end, least, greatest)) for end in ends)
        return self._replace(low=low, high=high, bootstrap_low=bootstrap_low, bootstrap_high=bootstrap_high)


def estimate(values: Values) -> Estimate:
    """Returns the mean of values by replicate and client, such as scores or paired differences, with its interval.

    A replicate without clients is left out.
    """
    values = {replicate: series for replicate, series in values.items() if len(series)}
    if not values:
        return Estimate(math.nan, 0, 0, "one")
    design, units = design_of(values), _units(values)
    plain = Estimate(float(units.mean()), max(map(len, values.values())), len(values), design)
    if design == "one":
        alone = unit_mean(next(iter(values.values())).to_numpy(float))
        return plain._replace(detectable=detectable_effect(float(alone.se), float(alone.df)))
    found = _crossed(values, plain.value) if design == "fixed" else unit_mean(units)
    se, df = float(found.se), float(found.df)
    plain = plain._replace(se=se, df=df, detectable=detectable_effect(se, df))
    if len(units) < FEWEST_UNITS:
        return plain
    low, high = map(float, bounds(found))
    plain = plain._replace(low=low, high=high, p=float(two_sided_p(found)))
    if design == "fixed":
        return plain
    low, high = studentised_bootstrap(units)
    return plain._replace(bootstrap_low=low, bootstrap_high=high)


def _units(values: Values) -> Array:
    """Returns the means of the independent units: of the runs, or of the partitions where seeds are nested in them."""
    means = pd.Series([float(series.mean()) for series in values.values()])
    if design_of(values) == "nested":
        means = means.groupby([replicate.data_seed for replicate in values]).mean()
    return np.asarray(means, float)


def _crossed(values: Values, mean: float) -> MeanError:
    """Returns the mean with the error of crossed effects, which the clients that all seeds share tell."""
    table = pd.concat(list(values.values()), axis=1).dropna()
    if len(table) < 2:
        return unit_mean(_units(values))
    return crossed_mean(table.T.to_numpy())._replace(value=np.asarray(mean))


def mean_estimate(
    runs: Sequence[Run],
    predictor: str | None = None,
    *,
    metric: str | None = None,
    population: str = "all",
    reading: Reading = LAST,
) -> Estimate:
    """Returns the mean of final values over clients and seeds with its interval, which ends at the metric's bounds.

    Args:
        runs: runs of one method that differ in nothing but seed and data_seed.
    """
    found = estimate(_scores(runs, predictor, metric, population, reading))
    return found.within(*metric_bounds(runs[0], metric or primary_metric(runs[0])))


def mean_estimates(
    groups: Groups,
    predictor: str | None = None,
    *,
    metric: str | None = None,
    population: str = "all",
    reading: Reading = LAST,
) -> pd.DataFrame:
    """Returns `mean_estimate` of every method, one row each: `method` and the fields of `Estimate` without `p`.

    A mean is not tested against 0, so that `detectable` is left out too.
    """
    lines = []
    for label, runs in groups.items():
        found = mean_estimate(runs, predictor, metric=metric, population=population, reading=reading)
        lines.append({"method": label, **found._asdict()})
    return pd.DataFrame(lines).drop(columns=["p", "detectable"])


def paired_comparisons(
    groups: Groups,
    predictor: str | None = None,
    *,
    metric: str | None = None,
    baseline: str | None = None,
    population: str = "all",
    reading: Reading = LAST,
) -> pd.DataFrame:
    """Compares every two methods of one scene, or every method with `baseline`, on the same replicates and clients.

    Columns: `method`, `other`, `clients`, `seeds` (replicates that both have), `design`, `difference` (method minus
    other), `low` and `high` (its 95 % interval, not corrected), `p`, `p_holm` (corrected over the pairs tested here),
    `detectable`, `bootstrap_low`, `bootstrap_high`; see `Estimate`.  Pairs without a common replicate are left out.

    Args:
        groups: methods of one scene, whose clients are the same; clients of different scenes are not comparable.

    Raises:
        UserError: there is one method, the baseline is unknown, or, without a given metric, the methods are judged by
            different ones.
    """
    if len(groups) < 2:
        raise UserError("a comparison needs two methods; give at least two")
    if baseline is not None and baseline not in groups:
        raise unknown_name("method", baseline, groups)
    if metric is None:
        refuse_other_metrics(groups)
    scores = {label: _scores(runs, predictor, metric, population, reading) for label, runs in groups.items()}
    return compare_scores(scores, baseline)


def compare_scores(scores: Mapping[str, Values], baseline: str | None = None) -> pd.DataFrame:
    """Compares methods as `paired_comparisons` does, given the values of every method by replicate and client."""
    lines = []
    for one, other in _pairs(scores, baseline):
        differences = _differences(scores[one], scores[other])
        if differences:
            found: dict[str, Any] = estimate(differences)._asdict()
            lines.append({"method": one, "other": other, "difference": found.pop("value"), **found})
    table = pd.DataFrame(lines, columns=[name for name in PAIR_COLUMNS if name != "p_holm"])
    table["p_holm"] = holm(table["p"].to_numpy(float))
    return table[PAIR_COLUMNS]


def _pairs(labels: Iterable[str], baseline: str | None) -> list[tuple[str, str]]:
    if baseline is None:
        return list(combinations(labels, 2))
    return [(label, baseline) for label in labels if label != baseline]


def _scores(
    runs: Iterable[Run], predictor: str | None, metric: str | None, population: str, reading: Reading
) -> dict[Replicate, pd.Series]:
    return {
        replicate_of(run): client_scores(
            run, predictor, metric=metric, population=population, reading=reading
        )
        for run in runs
    }


def _differences(one: Values, other: Values) -> dict[Replicate, pd.Series]:
    """Returns `one` minus `other` on the replicates and clients that both have."""
    found = {}
    for replicate in one:
        if replicate in other:
            series = (one[replicate] - other[replicate]).dropna()
            if len(series):
                found[replicate] = series
    return found
