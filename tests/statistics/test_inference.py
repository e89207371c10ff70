"""Level, coverage and power of intervals and tests, by simulation, and their equations written out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from idiolect.statistics.inference import (
    MeanError,
    bounds,
    crossed_mean,
    detectable_effect,
    holm,
    letters,
    studentised_bootstrap,
    two_sided_p,
    unit_mean,
)

REPETITIONS = 6000  # the standard error of a coverage of 95 % is 0.3 points
Components = tuple[float, float, float]  # SDs of seed, client and error, in points

# differences between two methods, seeds and clients as measured or milder; wide() tries many more
FIXED: list[tuple[int, int, Components]] = [
    (3, 50, (0.0, 5.0, 5.0)),
    (3, 50, (0.5, 5.0, 5.0)),
    (3, 50, (2.0, 5.0, 5.0)),
    (3, 50, (2.0, 0.0, 3.0)),
    (3, 20, (2.0, 2.0, 5.0)),
    (5, 50, (0.0, 5.0, 5.0)),
    (5, 50, (0.5, 2.0, 5.0)),
    (5, 50, (2.0, 5.0, 5.0)),
    (10, 50, (0.0, 5.0, 5.0)),
    (10, 50, (0.5, 2.0, 5.0)),
    (10, 20, (2.0, 5.0, 5.0)),
]
REDRAWN = list(itertools.product((3, 5, 10), (20, 50), [(0.0, 5.0, 5.0), (0.5, 5.0, 5.0), (2.0, 5.0, 5.0)]))


def fixed_partition(seeds: int, clients: int, components: Components, repetitions: int) -> np.ndarray:
    """Draws differences of mean 0, repetitions x seeds x clients, whose clients are those of every seed."""
    random = np.random.default_rng([seeds, clients, repetitions])
    by_seed, by_client, error = components
    drawn = by_seed * random.standard_normal((repetitions, seeds, 1))
    drawn = drawn + by_client * random.standard_normal((repetitions, 1, clients))
    return drawn + error * random.standard_normal((repetitions, seeds, clients))


def redrawn_partition(seeds: int, clients: int, components: Components, repetitions: int) -> np.ndarray:
    """Draws differences of mean 0 whose clients are others in every seed."""
    random = np.random.default_rng([seeds, clients, repetitions, 1])
    by_seed, by_client, error = components
    drawn = by_seed * random.standard_normal((repetitions, seeds, 1))
    return drawn + math.hypot(by_client, error) * random.standard_normal((repetitions, seeds, clients))


def true_error(seeds: int, clients: int, components: Components) -> float:
    by_seed, by_client, error = components
    return math.sqrt(by_seed**2 / seeds + by_client**2 / clients + error**2 / (seeds * clients))


def level_and_coverage(found: MeanError) -> tuple[float, float]:
    """Returns the share of false positives at 5 % and the coverage of the 95 % interval, of means that are 0."""
    low, high = bounds(found)
    return float((two_sided_p(found) < 0.05).mean()), float(((low <= 0) & (high >= 0)).mean())


@pytest.mark.parametrize(("seeds", "clients", "components"), FIXED)
def test_crossed_effects_hold_their_level_and_find_what_is_there(seeds, clients, components) -> None:
    drawn = fixed_partition(seeds, clients, components, REPETITIONS)
    false_positives, coverage = level_and_coverage(crossed_mean(drawn))
    assert false_positives <= 0.07 and 0.93 <= coverage <= 0.97
    # an effect of five and a half true standard errors is found in most cases, even with two degrees of freedom
    power = (two_sided_p(crossed_mean(drawn + 5.5 * true_error(seeds, clients, components))) < 0.05).mean()
    assert power > (0.75 if seeds == 3 else 0.97)


@pytest.mark.parametrize(("seeds", "clients", "components"), REDRAWN)
def test_seeds_that_redraw_the_data_hold_their_level(seeds, clients, components) -> None:
    units = redrawn_partition(seeds, clients, components, REPETITIONS).mean(axis=2)
    false_positives, coverage = level_and_coverage(unit_mean(units))
    assert false_positives <= 0.07 and 0.93 <= coverage <= 0.97
    error = math.sqrt(
        components[0] ** 2 / seeds + (components[1] ** 2 + components[2] ** 2) / (seeds * clients)
    )
    found = two_sided_p(unit_mean(units + detectable_effect(error, seeds - 1))) < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.02)  # what detectable_effect promises


def signed_ranks_of_seed_means(drawn: np.ndarray) -> np.ndarray:
    """The p-value that reports used to print: Wilcoxon over clients whose seeds are averaged."""
    return np.asarray(stats.wilcoxon(drawn.mean(axis=1), axis=1).pvalue)


def seed_means_as_crossed(drawn: np.ndarray) -> np.ndarray:
    return two_sided_p(crossed_mean(drawn))


def false_positives_of(rule: Callable[[np.ndarray], np.ndarray]) -> float:
    return float((rule(fixed_partition(3, 50, (2.0, 5.0, 5.0), 2000)) < 0.05).mean())


def test_clients_alone_as_the_unit_would_not_pass() -> None:
    assert false_positives_of(seed_means_as_crossed) <= 0.07
    assert false_positives_of(signed_ranks_of_seed_means) > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("clients", [3, 10, 20, 50, 100])
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_crossed_effects_never_claim_too_much(seeds, clients) -> None:
    for by_seed in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0):
        for rest in ((0.0, 3.0), (2.0, 5.0), (5.0, 5.0), (5.0, 2.0), (15.0, 3.0)):
            drawn = fixed_partition(seeds, clients, (by_seed, *rest), 4000)
            false_positives, coverage = level_and_coverage(crossed_mean(drawn))
            assert false_positives <= 0.07 and coverage >= 0.93, (by_seed, rest)
            if clients >= 20 and by_seed > 0.5 and rest[0] >= 5:
                assert coverage <= 0.97, (by_seed, rest)


@pytest.mark.parametrize("seeds", [10, 20])
def test_studentised_bootstrap_covers_from_ten_units_on(seeds) -> None:
    units = redrawn_partition(seeds, 1, (2.0, 0.0, 0.0), 1200)[:, :, 0]
    covers = [low <= 0 <= high for low, high in (studentised_bootstrap(row, resamples=400) for row in units)]
    assert 0.93 <= np.mean(covers) <= 0.97
    assert np.isnan(studentised_bootstrap(units[0, :9])).all()


def test_unit_mean_is_students_paired_test() -> None:
    values = np.array([0.3, -0.1, 0.4, 0.2])
    found, theirs = unit_mean(values), stats.ttest_1samp(values, 0)
    assert float(two_sided_p(found)) == pytest.approx(theirs.pvalue, rel=1e-12)
    low, high = theirs.confidence_interval()
    assert [float(bound) for bound in bounds(found)] == pytest.approx([low, high], rel=1e-12)


def test_crossed_mean_is_the_analysis_of_variance_written_out() -> None:
    table = np.random.default_rng(3).normal(size=(3, 6)) + np.arange(6) * 2 + np.array([[0], [4], [9]])
    seeds, clients = table.shape
    ms_seed = clients * np.var(table.mean(axis=1), ddof=1)
    ms_client = seeds * np.var(table.mean(axis=0), ddof=1)
    rest = [
        table[s, k] - table[s].mean() - table[:, k].mean() + table.mean()
        for s in range(seeds)
        for k in range(clients)
    ]
    ms_error = sum(value**2 for value in rest) / ((seeds - 1) * (clients - 1))
    assert min(ms_seed, ms_client) > ms_error
    found = crossed_mean(table)
    assert float(found.value) == pytest.approx(table.mean())
    assert float(found.se) == pytest.approx(math.sqrt((ms_seed + ms_client - ms_error) / (seeds * clients)))
    seed, client = 2 * ms_seed, ms_client * (1 + 2 / 5)
    assert float(found.df) == pytest.approx(
        (seed + client - ms_error) ** 2 / (seed**2 / 2 + client**2 / 5 + ms_error**2 / 10)
    )


def test_components_below_zero_count_as_zero() -> None:
    error = np.array(
        [[1.0, -1.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 1.0, -1.0]]
    )  # no seed or client effect at all
    found = crossed_mean(error)
    assert float(found.se) == pytest.approx(math.sqrt((6 / 4) / 9)) and float(found.df) == 4
    clients_only = error + np.array([10.0, 20.0, 60.0])
    ms_client = 3 * np.var(clients_only.mean(axis=0), ddof=1)
    assert float(crossed_mean(clients_only).se) == pytest.approx(math.sqrt(ms_client / 9))


def test_nothing_that_differs_is_no_evidence() -> None:
    assert float(two_sided_p(unit_mean([0.0, 0.0, 0.0]))) == 1
    assert float(two_sided_p(crossed_mean(np.zeros((3, 4))))) == 1
    assert float(two_sided_p(unit_mean([0.1, 0.1, 0.1]))) < 1e-6


def test_detectable_effect_of_one_degree_of_freedom_and_of_nothing() -> None:
    assert detectable_effect(1.0, 2) == pytest.approx(5.65, abs=0.05)
    assert math.isnan(detectable_effect(math.nan, 2)) and detectable_effect(0.0, 5) == 0


def table_of(p_values: dict[tuple[str, str], float]) -> pd.DataFrame:
    lines = [(one, other, p) for (one, other), p in p_values.items()]
    return pd.DataFrame(lines, columns=["method", "other", "p_holm"])


def test_letters_are_shared_by_methods_that_do_not_differ() -> None:
    pairs = table_of(
        {("A", "B"): 0.4, ("A", "C"): 0.01, ("B", "C"): 0.3, ("A", "D"): 0.001, ("B", "D"): 0.002}
    )
    pairs = pd.concat([pairs, table_of({("C", "D"): 0.04})])
    assert letters(["A", "B", "C", "D"], pairs) == {"A": "a", "B": "ab", "C": "b", "D": "c"}


@given(st.data())
def test_letters_say_exactly_which_pairs_differ(data) -> None:
    names = [f"m{number}" for number in range(data.draw(st.integers(2, 6)))]
    p_values = {pair: data.draw(st.sampled_from([0.01, 0.5])) for pair in itertools.combinations(names, 2)}
    shown = letters(names, table_of(p_values))
    for (one, other), p in p_values.items():
        assert bool(set(shown[one]) & set(shown[other])) == (p >= 0.05)


@pytest.mark.parametrize("count", [40, 90])
def test_every_group_has_a_letter_of_one_character(count: int) -> None:
    names = [f"m{number:02}" for number in range(count)]
    beside = dict.fromkeys(itertools.pairwise(names), 0.5)
    p_values = {pair: beside.get(pair, 0.001) for pair in itertools.combinations(names, 2)}
    shown = letters(names, table_of(p_values))
    assert len(set("".join(shown.values()))) == count - 1 and len(shown[names[1]]) == 2
    assert all(
        bool(set(shown[one]) & set(shown[other])) == (p > 0.05) for (one, other), p in p_values.items()
    )


def test_too_many_groups_are_those_like_the_best_and_the_rest() -> None:
    names = [f"m{number:02}" for number in range(30)]
    beside = dict.fromkeys(itertools.pairwise(names), 0.5)
    pairs = table_of({pair: beside.get(pair, 0.001) for pair in itertools.combinations(names, 2)})
    assert letters(names, pairs, most=12) == {name: "best" if name in names[:2] else "" for name in names}
    unpaired = pairs[~((pairs["method"] == "m00") & (pairs["other"] == "m07"))]
    assert letters(names, unpaired, most=12)["m07"] == "best"  # not known to differ
    assert letters(names, pairs, most=29) == letters(names, pairs)


def test_no_letters_without_a_test() -> None:
    assert letters(["A", "B"], table_of({("A", "B"): math.nan})) == {"A": "", "B": ""}


def test_holm_leaves_out_what_was_not_tested() -> None:
    assert holm([0.01, math.nan, 0.02]).tolist()[::2] == [0.02, 0.02]
    assert math.isnan(holm([0.01, math.nan])[1])
