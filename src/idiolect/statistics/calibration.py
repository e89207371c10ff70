"""Calibration of a finished run, from the counts of its final evaluation by bin of confidence.

With n_b samples in bin b, of which k_b are predicted right, and mean confidence c_b, a_b = k_b / n_b, n = sum_b n_b:

    ECE      = sum_b n_b/n |a_b - c_b|                                    Guo et al., ICML 2017, eq. (3)
    ECE_0    = sum_b 1/n E|K_b - n_b c_b|,   K_b ~ Binomial(n_b, c_b)     what a calibrated model would show
    debiased = sum_b n_b/n [(a_b - c_b)^2 - a_b (1 - a_b) / (n_b - 1)]    Kumar et al., NeurIPS 2019, section 5

An ECE cannot be below 0, so that it is above it by chance alone where samples are few: a calibrated model shows about
ECE_0.  The mean is exact (De Moivre): E|K - n p| = 2 v C(n, v) p^v (1 - p)^(n - v + 1) with v = floor(n p) + 1; it
takes the confidences of a bin as equal, which makes it slightly too large.  The debiased squared error is unbiased for
the bins that hold two samples or more, and may fall below 0 (Broecker, 2012, and Ferro and Fricker, 2012, correct the
reliability of forecasts in the same way); its root, where it is above, is a calibration error on the scale of the ECE,
and never smaller than the ECE of many samples (Jensen).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.statistics.measurements import headline

__all__ = [
    "Calibration",
    "calibration_bins",
    "calibration_of",
    "debiased_squared_error",
    "ece_if_calibrated",
    "few_samples",
    "final_counts",
    "pooled_ece",
    "reliability",
]

N_BINS = 15
Z = 1.959964  # of a 95 % interval


class Calibration(NamedTuple):
    """How well a predictor's confidence says how often it is right.

    Args:
        samples, clients: how many it was measured on.
        ece: of all samples together.
        if_calibrated: the ECE that a calibrated model with these confidences would show on so many samples.
        error: root of the debiased squared error of all samples together; 0 where that is below 0.
        client_error: the same where every client has bins of its own: errors of clients do not cancel in it.
        client_ece, client_if_calibrated: the ECE of clients, mean by their samples, and what it would be if calibrated.
    """

    samples: int
    clients: int
    ece: float
    if_calibrated: float
    error: float
    client_error: float
    client_ece: float
    client_if_calibrated: float


def final_counts(
    table: pd.DataFrame,
    run: Run,
    predictor: str | None,
    population: str,
    split: str,
    moment: str | None = None,
) -> pd.DataFrame:
    """Returns the rows of a table of counts of one predictor at the last moment that it was counted at.

    Args:
        predictor: None is the method's headline, and on the server's test set the shared model.
    """
    name = predictor or ("global" if split == "server" else headline(run))
    rows = table[
        (table["split"] == split) & (table["population"] == population) & (table["predictor"] == name)
    ]
    moments = [m for m in ("end", "after", "before") if (rows["moment"] == m).any()]
    wanted = moment or next(iter(moments), "")
    return rows[rows["moment"] == wanted]


def calibration_bins(
    runs: Run | Sequence[Run],
    predictor: str | None = None,
    *,
    population: str = "all",
    split: str = "test",
    by_client: bool = False,
) -> pd.DataFrame:
    """Returns the counts of the final evaluation in the columns `bin`, `count`, `confidence` and `correct` (sums).

    Counts of several runs are added up.

    Args:
        by_client: has bins of each run and client, in the columns `run` and `client` before the others.

    Raises:
        UserError: a run has no counts, because it is older or its task has no classes.
    """
    found = []
    for run in [runs] if isinstance(runs, Run) else runs:
        rows = final_counts(run.calibration, run, predictor, population, split)
        if rows.empty:
            raise UserError(
                f"{run.manifest['name']} has no counts of {predictor or headline(run)} by confidence"
            )
        found.append(rows)
    keys = ["run", "client", "bin"] if by_client else ["bin"]
    return pd.concat(found).groupby(keys, as_index=False)[["count", "confidence", "correct"]].sum()


def pooled_ece(bins: pd.DataFrame) -> float:
    """Returns the ECE of bins.

    >>> pooled_ece(pd.DataFrame({"count": [2, 2], "confidence": [1.8, 1.2], "correct": [1, 2]}))
    0.4
    """
    return float((bins["correct"] - bins["confidence"]).abs().sum() / bins["count"].sum())


def ece_if_calibrated(bins: pd.DataFrame) -> float:
    """Returns the mean ECE of a calibrated model with the confidences and sample sizes of the bins."""
    expected = [
        _mean_deviation(int(n), min(max(confidence / n, 0.0), 1.0))
        for n, confidence in zip(bins["count"], bins["confidence"], strict=True)
    ]
    return float(sum(expected) / bins["count"].sum())


def _mean_deviation(n: int, p: float) -> float:
    """Returns E|K - n p| of K ~ Binomial(n, p).

    >>> _mean_deviation(1, 0.25), _mean_deviation(2, 0.5)
    (0.375, 0.5)
    """
    if p <= 0.0 or p >= 1.0:
        return 0.0
    v = math.floor(n * p) + 1
    if v > n:  # n p = n up to rounding
        return 0.0
    choose = math.lgamma(n + 1) - math.lgamma(v + 1) - math.lgamma(n - v + 1)
    return round(2 * v * math.exp(choose + v * math.log(p) + (n - v + 1) * math.log1p(-p)), 15)


def debiased_squared_error(bins: pd.DataFrame) -> float:
    """Returns the unbiased estimate of the squared calibration error; NaN where no bin has two samples.

    Bins of one sample cannot tell chance from error and are left out.
    """
    some = bins[bins["count"] > 1]
    if some.empty:
        return math.nan
    n, right = some["count"].to_numpy(float), (some["correct"] / some["count"]).to_numpy(float)
    gaps = right - (some["confidence"] / some["count"]).to_numpy(float)
    return float((n * (gaps**2 - right * (1 - right) / (n - 1))).sum() / n.sum())


def calibration_of(
    runs: Run | Sequence[Run], predictor: str | None = None, *, population: str = "all", split: str = "test"
) -> Calibration:
    """Returns the calibration of a predictor at the final evaluation; several runs are taken together.

    Raises:
        UserError: a run has no counts.
    """
    own = calibration_bins(runs, predictor, population=population, split=split, by_client=True)
    bins = own.groupby("bin", as_index=False)[["count", "confidence", "correct"]].sum()
    errors = [debiased_squared_error(cells) for cells in (bins, own)]
    whole, by_client = (math.nan if e != e else math.sqrt(max(e, 0.0)) for e in errors)
    clients = len(own[["run", "client"]].drop_duplicates())
    return Calibration(
        int(bins["count"].sum()),
        clients,
        pooled_ece(bins),
        ece_if_calibrated(bins),
        whole,
        by_client,
        pooled_ece(own),
        ece_if_calibrated(own),
    )


def few_samples(found: Calibration) -> str:
    """Returns a sentence where the ECE of single clients is mostly chance; else an empty text."""
    if found.client_if_calibrated < found.client_ece / 2:
        return ""
    each = found.samples / found.clients
    return (
        f"with about {each:.0f} test samples each, clients of a perfectly calibrated model would show an ECE of "
        f"{100 * found.client_if_calibrated:.1f} %, and these show {100 * found.client_ece:.1f} %: judge calibration "
        "by all samples together"
    )


def reliability(bins: pd.DataFrame, n_bins: int = N_BINS) -> pd.DataFrame:
    """Returns the data of a reliability diagram, a row for each bin that holds samples.

    Columns: `low` and `high` edges of the bin, `count`, mean `confidence`, `accuracy`, and `accuracy_low`,
    `accuracy_high`, its 95 % interval by Wilson's score (Journal of the American Statistical Association 22, 1927).
    """
    n, right = bins["count"].to_numpy(float), (bins["correct"] / bins["count"]).to_numpy(float)
    centre = (right + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * np.sqrt(right * (1 - right) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return pd.DataFrame(
        {
            "low": bins["bin"].to_numpy() / n_bins,
            "high": (bins["bin"].to_numpy() + 1) / n_bins,
            "count": bins["count"].to_numpy(),
            "confidence": bins["confidence"].to_numpy() / n,
            "accuracy": right,
            "accuracy_low": centre - half,
            "accuracy_high": centre + half,
        }
    )
