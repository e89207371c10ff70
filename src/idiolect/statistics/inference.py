"""Confidence intervals and tests of a mean that varies with the seed and with the clients.

The functions work on arrays whose last axes are the seeds and the clients; any axes in front are separate problems that
are solved at once.  What runs they are applied to is decided in `idiolect.statistics.comparisons`.

Means of independent units, such as seeds that redraw the data (Student 1908):
    value = mean(u_i),   se^2 = sum (u_i - value)^2 / (n (n - 1)),   df = n - 1
Seeds crossed with clients, on one partition (Searle, Casella and McCulloch 1992, chapter 4):
    d_sk = mu + a_s + b_k + e_sk,   se^2 = (MS_seed + MS_client - MS_error) / (S K)
with the degrees of freedom of Satterthwaite (Biometrics Bulletin 1946), see `crossed_mean`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import optimize, stats

from idiolect.statistics.replicates import FEWEST_UNITS

__all__ = [
    "FEWEST_FOR_BOOTSTRAP",
    "FEWEST_UNITS",
    "LIKE_THE_BEST",
    "MeanError",
    "bounds",
    "crossed_mean",
    "detectable_effect",
    "holm",
    "letters",
    "studentised_bootstrap",
    "two_sided_p",
    "unit_mean",
]

Array = npt.NDArray[np.float64]
LEVEL = 0.95
POWER = 0.8
FEWEST_FOR_BOOTSTRAP = 10
RESAMPLES = 2000
LETTERS = ascii_lowercase + ascii_uppercase + "αβγδεζηθικλμνξπρστυφχψω"
LIKE_THE_BEST = "best"
FURTHER_LETTERS = 0x4E00  # the first of 20,000 ideographs


class MeanError(NamedTuple):
    """A mean, its standard error, and the degrees of freedom of that error; arrays of one shape."""

    value: Array
    se: Array
    df: Array


def unit_mean(units: npt.ArrayLike) -> MeanError:
    """Returns the mean of independent units, which lie on the last axis, with its standard error.

    >>> found = unit_mean([1.0, 2.0, 3.0])
    >>> float(found.value), round(float(found.se), 3), float(found.df)
    (2.0, 0.577, 2.0)
    """
    values = np.asarray(units, float)
    count = values.shape[-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = (
            values.var(axis=-1) * count / (count - 1) if count > 1 else np.full(values.shape[:-1], np.nan)
        )
    return MeanError(values.mean(axis=-1), np.sqrt(spread / count), np.full(values.shape[:-1], count - 1.0))


def crossed_mean(table: npt.ArrayLike) -> MeanError:
    """Returns the mean of a table of seeds x clients (the last two axes), both of which are random.

    With S seeds, K clients and mean squares MS the variance components are

        error = MS_error,   seed = max(0, MS_seed - MS_error) / K,   client = max(0, MS_client - MS_error) / S
        se^2 = seed / S + client / K + error / (S K)
        df = (M_seed + M_client - M_error)^2
             / (M_seed^2 / (S - 1) + M_client^2 / (K - 1) + M_error^2 / ((S - 1)(K - 1)))
        M_seed = MS_seed (1 + 2 / (S - 1)),   M_client = MS_client (1 + 2 / (K - 1)),   M_error = MS_error

    A component that comes out negative is 0, and its mean square leaves both formulas.  Satterthwaite's degrees of
    freedom have M = MS.  With three seeds MS_seed is often small by chance, the plain formula then takes the clients'
    degrees of freedom, and the interval covers 92.3 % instead of 95 %; enlarging each mean square by its own relative
    variance 2 / f brings the worst case to 93.6 % (docs/evaluation.md has the table).
    """
    values = np.asarray(table, float)
    seeds, clients = values.shape[-2:]
    mean = values.mean(axis=(-2, -1))
    by_seed, by_client = values.mean(axis=-1), values.mean(axis=-2)
    rest = values - by_seed[..., :, None] - by_client[..., None, :] + mean[..., None, None]
    freedom = np.array([seeds - 1, clients - 1, (seeds - 1) * (clients - 1)], float)
    with np.errstate(invalid="ignore", divide="ignore"):
        ms_seed = clients * ((by_seed - mean[..., None]) ** 2).sum(axis=-1) / freedom[0]
        ms_client = seeds * ((by_client - mean[..., None]) ** 2).sum(axis=-1) / freedom[1]
        ms_error = (rest**2).sum(axis=(-2, -1)) / freedom[2]
        total, _ = _combined(ms_seed, ms_client, ms_error, freedom)
        _, df = _combined(ms_seed * (1 + 2 / freedom[0]), ms_client * (1 + 2 / freedom[1]), ms_error, freedom)
    return MeanError(mean, np.sqrt(total / (seeds * clients)), df)


def _combined(seed: Array, client: Array, error: Array, freedom: Array) -> tuple[Array, Array]:
    """Returns `seed + client - error` with negative components at 0, and Satterthwaite's degrees of freedom of it."""
    has_seed, has_client = seed > error, client > error
    total = np.where(has_seed, seed - error, 0) + np.where(has_client, client - error, 0) + error
    counts_error = has_seed == has_client  # with one component alone, its mean square is the whole
    spread = (
        np.where(has_seed, seed**2 / freedom[0], 0)
        + np.where(has_client, client**2 / freedom[1], 0)
        + np.where(counts_error, error**2 / freedom[2], 0)
    )
    largest = freedom.max()
    df = np.where(spread > 0, total**2 / np.where(spread > 0, spread, 1), largest)
    return total, np.minimum(df, largest)


def bounds(found: MeanError, level: float = LEVEL) -> tuple[Array, Array]:
    """Returns the lower and upper bound of Student's interval of a mean."""
    reach = stats.t.ppf((1 + level) / 2, found.df) * found.se
    return found.value - reach, found.value + reach


def two_sided_p(found: MeanError) -> Array:
    """Returns the two-sided p-value of Student's test that the mean is 0; 1 where nothing varies around 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.abs(found.value) / found.se
    p = 2 * stats.t.sf(ratio, found.df)
    return np.asarray(np.where((found.se == 0) & (found.value == 0), 1.0, p), float)


def detectable_effect(se: float, df: float, *, level: float = LEVEL, power: float = POWER) -> float:
    """Returns the smallest true difference that a test at 1 - `level` finds with probability `power`.

    It is se x delta, where Student's t with `df` degrees of freedom and noncentrality delta exceeds the test's critical
    value with that probability (Cohen 1988, chapter 2).

    >>> round(detectable_effect(1.0, 1e6), 2)
    2.8
    """
    if not (np.isfinite(se) and np.isfinite(df) and df > 0):
        return float("nan")
    critical = stats.t.ppf((1 + level) / 2, df)

    def missing(delta: float) -> float:
        return float(stats.nct.sf(critical, df, delta)) - power

    return float(se * optimize.brentq(missing, 0.0, 4 * critical + 4))


def studentised_bootstrap(
    units: npt.ArrayLike, *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Returns the bootstrap-t interval of the mean of independent units; NaN with fewer than ten.

    Resamples give t* = (mean* - mean) / se*; the bounds are mean - q_(1 + level)/2 se and mean - q_(1 - level)/2 se.
    The percentile interval of so few units is too narrow, this one is not.
    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 12.5
    """
    values = np.asarray(units, float)
    if len(values) < FEWEST_FOR_BOOTSTRAP or np.ptp(values) == 0:
        return float("nan"), float("nan")
    drawn = np.random.default_rng(seed).integers(len(values), size=(resamples, len(values)))
    own, again = unit_mean(values), unit_mean(values[drawn])
    varied = again.se > 0
    ratio = (again.value[varied] - own.value) / again.se[varied]
    low, high = np.quantile(ratio, [(1 - level) / 2, (1 + level) / 2])
    return float(own.value - high * own.se), float(own.value - low * own.se)


def holm(p_values: Sequence[float] | Array) -> Array:
    """Returns p-values corrected for their number, in the order given (Holm, Scandinavian J. Statistics 1979).

    p_(i) <- max_{j <= i} min(1, (m - j + 1) p_(j)), where m counts the p-values that are not NaN; NaN stays.

    >>> holm([0.01, 0.04, 0.03, 0.005]).tolist()
    [0.03, 0.06, 0.06, 0.02]
    """
    values = np.asarray(p_values, float)
    corrected = np.full_like(values, np.nan)
    tested = np.flatnonzero(~np.isnan(values))
    order = tested[np.argsort(values[tested], kind="stable")]
    stepped = values[order] * (len(order) - np.arange(len(order)))
    corrected[order] = np.minimum(np.maximum.accumulate(stepped), 1)
    return corrected


def letters(
    order: Sequence[str], pairs: pd.DataFrame, level: float = 0.05, *, most: int | None = None
) -> dict[str, str]:
    """Returns a compact letter display: two methods that share a letter do not differ significantly.

    Empty texts where no pair was tested.  A pair that was not tested is not known to differ and shares a letter.
    Piepho, Journal of Computational and Graphical Statistics 2004 (insert and absorb)

    Args:
        order: the methods, the best first, which gets the letter `a`; a letter is always one character.
        pairs: the table of `paired_comparisons`.
        most: where more groups than these come up, no letters are given: the best method and those that do not differ
            from it significantly have the word `best`, the others an empty text.  Many methods with few seeds can have
            hundreds of groups, which nobody reads.
    """
    if not pairs["p_holm"].notna().any():
        return dict.fromkeys(order, "")
    significant = pairs[pairs["p_holm"] < level]
    groups = [frozenset(order)]
    for one, other in zip(significant["method"], significant["other"], strict=True):
        both = [group for group in groups if {one, other} <= group]
        split = [group - {name} for group in both for name in (one, other)]
        groups = [group for group in groups if group not in both] + split
        groups = [g for g in dict.fromkeys(groups) if not any(g < larger for larger in groups)]
        if most is not None and len(groups) > most:
            return _like_the_best(order, significant)
    place: Mapping[str, int] = {name: number for number, name in enumerate(order)}
    groups.sort(key=lambda group: sorted(place[name] for name in group))
    return {
        name: "".join(_letter(number) for number, group in enumerate(groups) if name in group)
        for name in order
    }


def _like_the_best(order: Sequence[str], significant: pd.DataFrame) -> dict[str, str]:
    """Returns a word for the first method and all that do not differ from it significantly."""
    apart = {frozenset(pair) for pair in zip(significant["method"], significant["other"], strict=True)}
    return {name: "" if frozenset((order[0], name)) in apart else LIKE_THE_BEST for name in order}


def _letter(number: int) -> str:
    """Returns one character for a group: `a` to `z`, `A` to `Z`, Greek letters, then ideographs."""
    if number < len(LETTERS):
        return LETTERS[number]
    return chr(FURTHER_LETTERS + number - len(LETTERS))
