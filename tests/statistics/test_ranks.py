"""Ranks, Friedman's test and Nemenyi's distance against Demsar's article, scipy and hand computations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from idiolect.errors import UserError
from idiolect.statistics import average_ranks, friedman, nemenyi, rank_methods, scenario_table
from idiolect.statistics.ranks import together

# Demsar, JMLR 2006, table 6: AUC of C4.5 with and without parameter tuning on 14 datasets.  The last but one prints
# 0.975 twice and ranks them 2 and 3: one is written a little higher here.
DEMSAR = pd.DataFrame(
    [
        (0.763, 0.768, 0.771, 0.798),
        (0.599, 0.591, 0.590, 0.569),
        (0.954, 0.971, 0.968, 0.967),
        (0.628, 0.661, 0.654, 0.657),
        (0.882, 0.888, 0.886, 0.898),
        (0.936, 0.931, 0.916, 0.931),
        (0.661, 0.668, 0.609, 0.685),
        (0.583, 0.583, 0.563, 0.625),
        (0.775, 0.838, 0.866, 0.875),
        (1.000, 1.000, 1.000, 1.000),
        (0.940, 0.962, 0.965, 0.962),
        (0.619, 0.666, 0.614, 0.669),
        (0.972, 0.981, 0.9751, 0.975),
        (0.957, 0.978, 0.946, 0.970),
    ],
    columns=["C4.5", "m", "cf", "m+cf"],
)
# q_0.05 and q_0.10 of two to ten methods: the same article, table 5a
Q_05 = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)
Q_10 = (1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920)


def test_ranks_are_those_of_the_article():
    assert average_ranks(DEMSAR).round(3).to_dict() == {"m+cf": 1.964, "m": 2.0, "cf": 2.893, "C4.5": 3.143}


def test_ranks_of_a_loss_go_the_other_way():
    assert average_ranks(-DEMSAR, higher_is_better=False).equals(average_ranks(DEMSAR))


def test_friedman_without_ties_is_the_formula():
    scores = pd.DataFrame([[0.1, 0.2, 0.3], [0.5, 0.4, 0.9], [0.1, 0.6, 0.7], [0.2, 0.3, 0.1]])
    n, k = scores.shape
    mean = average_ranks(scores).to_numpy()
    expected = 12 * n / (k * (k + 1)) * ((mean**2).sum() - k * (k + 1) ** 2 / 4)
    statistic, p_value = friedman(scores)
    assert statistic == pytest.approx(expected, rel=1e-12)
    assert p_value == pytest.approx(stats.chi2.sf(expected, k - 1), rel=1e-12)


def test_friedman_of_the_article_is_corrected_for_ties():
    """The article's 9.28 is without the correction, which divides by 1 - sum (t^3 - t) / (N (k^3 - k))."""
    ties = [np.unique(line, return_counts=True)[1] for line in DEMSAR.to_numpy()]
    correction = 1 - sum((t**3 - t).sum() for t in ties) / (14 * (4**3 - 4))
    assert friedman(DEMSAR)[0] * correction == pytest.approx(9.28, abs=0.01)


def test_friedman_of_equal_methods_finds_nothing():
    assert friedman(pd.DataFrame(np.full((4, 3), 0.5))) == (0.0, 1.0)


@pytest.mark.parametrize("methods", range(2, 11))
def test_distance_has_the_quantiles_of_the_article(methods):
    unit = np.sqrt(methods * (methods + 1) / (6 * 14))
    assert nemenyi(methods, 14) / unit == pytest.approx(Q_05[methods - 2], abs=1e-3)
    assert nemenyi(methods, 14, level=0.10) / unit == pytest.approx(Q_10[methods - 2], abs=1e-3)


def test_article_tells_the_best_from_the_worst_at_a_tenth():
    ranking = rank_methods(DEMSAR, level=0.10)
    assert ranking.distance == pytest.approx(1.12, abs=0.005)
    assert ranking.groups == [("m+cf", "m", "cf"), ("cf", "C4.5")]
    assert (ranking.scenarios, ranking.level) == (14, 0.10)
    assert ranking.p_value == friedman(DEMSAR)[1]


def test_groups_are_the_largest_and_none_lies_in_another():
    """b is 0.5 from a, c and d 0.9 and 1.0 from b: at 1.0 two methods are told apart."""
    ranks = pd.Series({"a": 1.0, "b": 1.5, "c": 2.4, "d": 2.5, "e": 5.0, "f": 5.9, "g": 8.0})
    assert together(ranks, 1.0) == [("a", "b"), ("b", "c"), ("c", "d"), ("e", "f")]
    assert together(ranks, 1.1) == [("a", "b"), ("b", "c", "d"), ("e", "f")]
    assert together(ranks, 9.0) == [tuple("abcdefg")]
    assert together(ranks, 0.05) == []


def test_scenarios_average_clients_and_seeds(final):
    scenarios = {
        "one": {
            "A": [final(0.1, 0.3), final(0.5, 0.7, seed=1)],
            "B": [final(0.2, 0.2), final(0.2, 0.2, seed=1)],
        },
        "two": {"A": [final(0.9)], "B": [final(0.8)]},
    }
    table = scenario_table(scenarios)
    assert table.loc["one"].to_dict() == pytest.approx({"A": 0.4, "B": 0.2})
    assert table.loc["two"].to_dict() == {"A": 0.9, "B": 0.8}


def test_method_that_lacks_a_scenario_is_refused_by_name(final):
    with pytest.raises(UserError, match="B has no number in two"):
        scenario_table({"one": {"A": [final(0.1)], "B": [final(0.2)]}, "two": {"A": [final(0.9)]}})


def test_too_few_methods_are_sent_to_the_paired_test():
    with pytest.raises(UserError, match="needs three methods and two scenarios, got 2 and 5"):
        friedman(pd.DataFrame(np.random.default_rng(0).random((5, 2))))
