"""Paired significance tests of two methods, with clients as the unit.

Wilcoxon signed-rank: the ranks of |d_k| over clients with d_k above and below 0; clients with d_k = 0 are left out.
Paired permutation: how often the mean of +-d_k is as far from 0 as that of d_k, over all signs or over random ones.
Holm (1979) corrects for the number of comparisons: p_(i) <- max_{j <= i} min(1, (m - j + 1) p_(j)).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from idiolect.errors import UserError, refuse_outside, unknown_name
from idiolect.statistics.inference import holm

__all__ = ["paired_tests", "permutation_test", "signed_rank_test"]

DIGITS = 12  # accuracies that agree to so many digits count as equal
AT_ONCE = 4_000_000
COLUMNS = [
    "method",
    "other",
    "clients",
    "equal",
    "mean_difference",
    "wilcoxon_p",
    "permutation_p",
    "wilcoxon_holm",
    "permutation_holm",
]


def signed_rank_test(differences: Sequence[float] | np.ndarray) -> float:
    """Returns the two-sided p-value of the Wilcoxon signed-rank test; 1 where no client differs."""
    values = np.round(np.asarray(differences, float), DIGITS)
    values = values[values != 0]
    return float(stats.wilcoxon(values).pvalue) if len(values) else 1.0


def permutation_test(
    differences: Sequence[float] | np.ndarray, *, resamples: int = 10_000, seed: int = 0
) -> float:
    """Returns the two-sided p-value of the paired permutation test of the mean.

    The test goes through all 2^n signs where those are at most `resamples`; otherwise it draws as many at random and
    counts the observed signs among them, so that no p-value is 0.
    """
    refuse_outside("resamples", resamples, 1)
    values = np.asarray(differences, float)
    units, observed = len(values), abs(values.sum())
    bar = observed - 10.0**-DIGITS * np.abs(values).sum()
    if 2**units <= resamples:
        signs = 1 - 2 * (np.arange(2**units)[:, None] >> np.arange(units) & 1)
        return float((np.abs(signs @ values) >= bar).mean())
    random, reached, chunk = np.random.default_rng(seed), 0, max(1, AT_ONCE // units)
    for first in range(0, resamples, chunk):
        drawn = random.integers(2, size=(min(chunk, resamples - first), units), dtype=np.int8)
        reached += int((np.abs((1 - 2 * drawn) @ values) >= bar).sum())
    return (reached + 1) / (resamples + 1)


def paired_tests(
    table: pd.DataFrame, *, baseline: str | None = None, resamples: int = 10_000, seed: int = 0
) -> pd.DataFrame:
    """Tests every two methods, or every method against `baseline`, with Holm's correction over all these pairs.

    Args:
        table: clients against methods, as `client_table` returns it: seeds are averaged, clients are the unit.

    Columns: `method`, `other`, `clients`, `equal` (clients with no difference), `mean_difference` (method minus
    other), the p-values of both tests, and the same corrected.
    """
    methods = list(table.columns)
    if len(methods) < 2:
        raise UserError("a paired test needs two methods; give at least two")
    if baseline is not None and baseline not in methods:
        raise unknown_name("method", baseline, methods)
    pairs = (
        list(combinations(methods, 2))
        if baseline is None
        else [(m, baseline) for m in methods if m != baseline]
    )
    lines = []
    for one, other in pairs:
        differences = (table[one] - table[other]).to_numpy()
        equal = int((np.round(differences, DIGITS) == 0).sum())
        tests = signed_rank_test(differences), permutation_test(differences, resamples=resamples, seed=seed)
        lines.append((one, other, len(differences), equal, float(differences.mean()), *tests))
    found = pd.DataFrame(lines, columns=COLUMNS[:-2])
    for name in ("wilcoxon", "permutation"):
        found[f"{name}_holm"] = holm(found[f"{name}_p"].to_numpy())
    return found
