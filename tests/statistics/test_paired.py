"""Paired tests against brute force and scipy; Holm's correction by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from idiolect.errors import UserError
from idiolect.statistics import client_table, holm, paired_tests, permutation_test, signed_rank_test


def all_signs(differences, statistic) -> float:
    """Share of the sign patterns whose statistic is as extreme as the observed."""
    values = np.asarray(differences)
    observed = abs(statistic(values))
    patterns = [abs(statistic(values * signs)) for signs in product((1, -1), repeat=len(values))]
    return float(np.mean([value >= observed - 1e-12 for value in patterns]))


def signed_ranks(values: np.ndarray) -> float:
    return float((np.sign(values) * stats.rankdata(np.abs(values))).sum())


DIFFERENCES = [0.11, -0.02, 0.05, 0.07, -0.01, 0.13, 0.03]


def test_wilcoxon_is_that_of_all_signs():
    assert signed_rank_test(DIFFERENCES) == pytest.approx(all_signs(DIFFERENCES, signed_ranks), rel=1e-12)


def test_wilcoxon_leaves_equal_clients_out():
    assert signed_rank_test([*DIFFERENCES, 0.0, 0.0]) == signed_rank_test(DIFFERENCES)
    assert signed_rank_test([*DIFFERENCES, 0.3 - (0.1 + 0.2)]) == signed_rank_test(DIFFERENCES)
    assert signed_rank_test([0.0, 0.0]) == 1


def test_wilcoxon_with_ties_is_that_of_all_signs():
    tied = [0.1, 0.1, -0.1, 0.2, 0.3, 0.3, 0.4]
    assert signed_rank_test(tied) == pytest.approx(all_signs(tied, signed_ranks), rel=1e-12)


def test_wilcoxon_of_many_clients_agrees_with_scipy():
    values = np.random.default_rng(2).normal(0.02, 0.1, 80)
    assert signed_rank_test(values) == pytest.approx(stats.wilcoxon(values).pvalue, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=8))
def test_permutation_of_few_clients_is_that_of_all_signs(numbers):
    differences = [n / 30 for n in numbers]
    assert permutation_test(differences) == pytest.approx(all_signs(differences, np.sum), rel=1e-12)


def test_permutation_agrees_with_scipy():
    values = np.random.default_rng(3).normal(0.03, 0.1, 10)
    theirs = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=False
    )
    assert permutation_test(values) == pytest.approx(theirs.pvalue, rel=1e-9)


def test_permutation_of_many_clients_is_drawn_seeded_and_never_zero(monkeypatch):
    values = np.random.default_rng(5).normal(0.02, 0.1, 14)
    exact = permutation_test(values, resamples=2**14)
    drawn = permutation_test(values, resamples=2**14 - 1)
    assert drawn == permutation_test(values, resamples=2**14 - 1) != exact
    assert drawn == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 2**14))
    assert permutation_test(np.full(40, 0.1), resamples=99) == 1 / 100
    monkeypatch.setattr("idiolect.statistics.significance_tests.AT_ONCE", 140)
    assert permutation_test(values, resamples=2**14 - 1) == drawn


def test_tests_are_symmetric_in_the_two_methods():
    values = np.array(DIFFERENCES)
    assert signed_rank_test(values) == signed_rank_test(-values)
    assert permutation_test(values) == permutation_test(-values)


def test_false_alarms_are_as_rare_as_the_level():
    random = np.random.default_rng(7)
    trials = random.normal(0, 0.1, (400, 12))
    for test in (signed_rank_test, permutation_test):
        alarms = np.mean([test(values) <= 0.1 for values in trials])
        assert 0.06 <= alarms <= 0.14


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.4, 0.6]).tolist() == pytest.approx([0.8, 0.8])
    assert holm([0.2]).tolist() == [0.2] and holm([]).tolist() == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_the_step_down_rule_rejects(p_values):
    for level in (0.05, 0.2):
        rejected, order = set(), np.argsort(p_values, kind="stable")
        for step, place in enumerate(order):
            if p_values[place] * (len(p_values) - step) > level:
                break
            rejected.add(int(place))
        assert set(np.flatnonzero(holm(p_values) <= level).tolist()) == rejected


def test_every_pair_is_tested_with_clients_as_the_unit(final):
    random = np.random.default_rng(0)
    levels = {"A": 0.6, "B": 0.6, "C": 0.9}
    groups = {
        label: [final(*np.clip(random.normal(level, 0.05, 20), 0, 1), seed=seed) for seed in range(3)]
        for label, level in levels.items()
    }
    table = client_table(groups)
    found = paired_tests(table, resamples=2000).set_index(["method", "other"])
    assert list(found.index) == [("A", "B"), ("A", "C"), ("B", "C")]
    assert (found["clients"] == 20).all()  # not 60: seeds are averaged first
    for (one, other), line in found.iterrows():
        assert line["mean_difference"] == pytest.approx(table[one].mean() - table[other].mean())
        assert line["wilcoxon_p"] == signed_rank_test(table[one] - table[other])
    assert found["wilcoxon_holm"].tolist() == holm(found["wilcoxon_p"]).tolist()
    assert found["permutation_holm"].tolist() == holm(found["permutation_p"]).tolist()
    assert found.loc[("A", "C"), "wilcoxon_holm"] < 0.01 < found.loc[("A", "B"), "wilcoxon_holm"]


def test_baseline_is_compared_with_every_other(final):
    table = client_table(
        {label: [final(*values)] for label, values in (("A", (0.1, 0.2)), ("B", (0.3, 0.2)))}
    )
    found = paired_tests(table, baseline="A")
    assert found[["method", "other", "equal"]].to_numpy().tolist() == [["B", "A", 1]]
    with pytest.raises(UserError, match="unknown method 'Z'"):
        paired_tests(table, baseline="Z")
    with pytest.raises(UserError, match="needs two methods"):
        paired_tests(pd.DataFrame({"A": [0.1]}))
