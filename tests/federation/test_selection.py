"""Who takes part in a round."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idiolect.core import derive
from idiolect.federation import cohort_size, select


@pytest.mark.parametrize(
    ("rate", "population", "size"),
    [(0.29, 100, 29), (0.57, 100, 57), (0.01, 10, 1), (1.0, 7, 7), (0.5, 7, 3), (0.1, 50, 5), (1e-9, 3, 1)],
)
def test_cohort_size_is_the_floor_and_at_least_one(rate, population, size):
    assert cohort_size(rate, population) == size


@given(percent=st.integers(1, 100), hundreds=st.integers(1, 5))
def test_cohort_size_of_whole_percents_is_exact(percent, hundreds):
    assert cohort_size(percent / 100, 100 * hundreds) == percent * hundreds


@given(
    rate=st.floats(0.01, 1), population=st.integers(1, 60), seed=st.integers(0, 99), round=st.integers(0, 99)
)
def test_cohort_is_sorted_without_duplicates_and_of_known_clients(rate, population, seed, round):
    chosen = select(rate, population, seed=seed, round=round)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == cohort_size(rate, population)
    assert all(type(c) is int and 0 <= c < population for c in chosen)
    assert chosen == select(rate, population, seed=seed, round=round)


def test_cohort_differs_by_round_and_by_seed():
    first = select(0.5, 40, seed=0, round=0)
    assert first != select(0.5, 40, seed=0, round=1)
    assert first != select(0.5, 40, seed=1, round=0)


def test_everyone_is_selected_about_equally_often():
    counts = np.zeros(10)
    for round in range(2000):
        counts[select(0.3, 10, seed=0, round=round)] += 1
    # 2000 draws with probability 0.3: mean 600, SD 20.5
    assert abs(counts - 600).max() < 5 * 20.5


def test_selection_draws_from_its_own_purpose_alone():
    random = np.random.default_rng(derive(5, "selection", 2))
    expected = sorted(random.choice(20, 6, replace=False).tolist())
    np.random.seed(0)
    assert select(0.3, 20, seed=5, round=2) == expected
    assert derive(5, "selection", 2) != derive(5, "batches", 2)


def test_poisson_draws_each_client_by_itself():
    cohorts = [select(0.3, 10, seed=0, round=round, selection="poisson") for round in range(2000)]
    drawn = np.zeros((2000, 10))
    for round, cohort in enumerate(cohorts):
        assert cohort == sorted(set(cohort))
        drawn[round, cohort] = 1
    assert abs(drawn.mean(0) - 0.3).max() < 5 * 0.0103  # SD of a mean of 2000
    together = np.corrcoef(drawn.T) - np.eye(10)
    assert abs(together).max() < 5 / np.sqrt(2000)  # a fixed size would make it -1/9
    assert {len(cohort) for cohort in cohorts} >= {0, 1, 2, 3, 4, 5, 6}
