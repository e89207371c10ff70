"""Bootstrap intervals against all resamples there are, and against scipy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from idiolect.errors import UserError
from idiolect.statistics import Resampling, bootstrap_interval, intervals


def test_interval_is_that_of_all_resamples():
    """Three values have 27 equally likely resamples; enough draws give their quantiles."""
    values = [0.0, 0.3, 0.9]
    means = np.sort([np.mean(drawn) for drawn in product(values, repeat=3)])
    found = bootstrap_interval(values, Resampling(level=0.8, resamples=200_000))
    assert found.value == pytest.approx(0.4)
    assert (found.low, found.high) == (pytest.approx(means[2]), pytest.approx(means[-3]))
    assert found.low == pytest.approx(np.quantile(np.repeat(means, 1000), 0.1))


@pytest.mark.parametrize("statistic", [np.mean, np.median, np.std])
def test_interval_agrees_with_scipy(statistic):
    values = np.random.default_rng(4).beta(5, 2, 60)
    found = bootstrap_interval(values, Resampling(level=0.9, resamples=20_000), statistic=statistic)
    theirs = stats.bootstrap(
        (values,), statistic, confidence_level=0.9, n_resamples=20_000, method="percentile", rng=1
    ).confidence_interval
    assert found.value == statistic(values)
    width = theirs.high - theirs.low
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.05 * width)


def test_interval_is_seeded_and_independent_of_how_it_is_chunked(monkeypatch):
    values = np.random.default_rng(0).random(50)
    one = bootstrap_interval(values, Resampling(resamples=501, seed=3))
    assert bootstrap_interval(values, Resampling(resamples=501, seed=3)) == one
    assert bootstrap_interval(values, Resampling(resamples=501, seed=4)) != one
    monkeypatch.setattr("idiolect.statistics.bootstrap.AT_ONCE", 1000)
    assert bootstrap_interval(values, Resampling(resamples=501, seed=3)) == one


def test_interval_covers_the_mean_as_often_as_it_says():
    random = np.random.default_rng(1)
    covered = 0
    for trial in range(300):
        found = bootstrap_interval(
            random.normal(0.5, 0.1, 40), Resampling(level=0.9, resamples=500, seed=trial)
        )
        covered += found.low <= 0.5 <= found.high
    assert 0.84 <= covered / 300 <= 0.95


def test_single_unit_has_no_interval():
    found = bootstrap_interval([0.7])
    assert found.value == 0.7 and found.units == 1 and np.isnan([found.low, found.high]).all()
    assert np.isnan(bootstrap_interval([]).value)


def test_units_are_clients_or_seeds(final):
    groups = {"A": [final(0.1, 0.5, 0.9, seed=0), final(0.3, 0.7, 0.9, seed=1)]}
    clients = intervals(groups, resampling=Resampling(resamples=500)).iloc[0]
    assert (clients["over"], clients["units"], clients["mean"]) == ("clients", 3, pytest.approx(1.7 / 3))
    assert clients["low"] == bootstrap_interval([0.2, 0.6, 0.9], Resampling(resamples=500)).low
    seeds = intervals(groups, over="seeds", resampling=Resampling(resamples=500)).iloc[0]
    assert (seeds["units"], seeds["mean"]) == (2, pytest.approx(1.7 / 3))
    assert (seeds["low"], seeds["high"]) == (pytest.approx(0.5), pytest.approx(1.9 / 3))
    with pytest.raises(UserError, match="over must be one of clients, seeds"):
        intervals(groups, over="rounds")
