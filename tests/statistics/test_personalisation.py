"""Means over clients and over rounds, and standard deviations by name, against hand computations."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idiolect.statistics import (
    end_mean,
    fairer,
    personalisation,
    spread,
    variation,
    window_mean,
)


def test_table_has_the_last_measurement_of_each_population_and_moment(make_run):
    run = make_run(
        {
            (1, "own", "after", "selected"): {0: 0.9, 1: 0.9},
            (3, "own", "before", "selected"): {2: 0.2},
            (3, "own", "after", "selected"): {2: 0.4, 3: 0.8},
            (4, "own", "before", "all"): {0: 0.1, 1: 0.2, 2: 0.3},
            (4, "global", "before", "all"): {0: 0.5, 1: 0.5, 2: 0.5},
            (4, "own", "after", "new"): {9: 0.7},
        }
    )
    table = personalisation(run).set_index(["population", "moment", "predictor"])
    assert table.loc[("selected", "after", "own"), ["round", "clients", "mean"]].tolist() == pytest.approx(
        [3, 2, 0.6]
    )
    assert table.loc[("selected", "before", "own"), "mean"] == 0.2
    assert table.loc[("all", "before", "own"), "mean"] == pytest.approx(0.2)
    assert table.loc[("new", "after", "own"), ["clients", "mean"]].tolist() == [1, 0.7]
    assert table["headline"].to_dict()[("all", "before", "global")] is False
    assert table["headline"].sum() == 4


def test_end_is_the_mean_over_the_last_rounds_of_the_selected(make_run):
    values = {r: {r % 3: r / 100, 5: 0.5} for r in range(1, 15)}
    run = make_run({(r, "own", "after", "selected"): v for r, v in values.items()}, rounds=14)
    by_round = [(r / 100 + 0.5) / 2 for r in range(5, 15)]
    assert end_mean(run) == (pytest.approx(statistics.mean(by_round)), 10)
    assert end_mean(run, rounds=1) == (pytest.approx((0.14 + 0.5) / 2), 1)


def test_end_weighs_rounds_alike_whatever_their_cohorts(make_run):
    run = make_run(
        {
            (1, "own", "after", "selected"): {0: 0.0},
            (2, "own", "after", "selected"): {0: 1.0, 1: 1.0, 2: 1.0},
        },
        rounds=2,
    )
    assert end_mean(run).value == 0.5


def test_end_counts_the_rounds_that_were_measured(make_run):
    run = make_run({(r, "own", "after", "selected"): {0: 0.1 * r} for r in (2, 6, 8)}, rounds=8)
    assert end_mean(run, rounds=4) == (pytest.approx(0.7), 2)
    assert window_mean(run, 1, 5) == (pytest.approx(0.2), 1)
    assert math.isnan(window_mean(run, 3, 5).value)


def test_spread_by_hand():
    values = pd.Series([0.1, 0.2, 0.3, 0.8])
    found = spread(values)
    assert found["mean"] == pytest.approx(0.35)
    assert found["sd_ddof0"] == pytest.approx(statistics.pstdev(values))
    assert found["sd_ddof1"] == pytest.approx(statistics.stdev(values))
    assert (found["min"], found["max"], found["clients"]) == (0.1, 0.8, 4)
    assert found["percentile_10"] == found["decile_1"] == pytest.approx(0.1 + 0.3 * 0.1)  # place 0.3 of 0..3
    assert found["decile_5"] == pytest.approx(0.25)
    assert found["worst_tenth"] == 0.1


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_spread_agrees_with_the_standard_library(values):
    found = spread(pd.Series(values))
    cuts = statistics.quantiles(values, n=10, method="inclusive")
    assert [found[f"decile_{i}"] for i in range(1, 10)] == pytest.approx(cuts, abs=1e-12)
    assert found["sd_ddof0"] == pytest.approx(statistics.pstdev(values), abs=1e-9)
    assert found["sd_ddof1"] == pytest.approx(statistics.stdev(values), abs=1e-9)


def test_spread_of_one_client_and_of_none():
    one, none = spread(pd.Series([0.4])), spread(pd.Series([], dtype=float))
    assert (one["sd_ddof0"], one["worst_tenth"]) == (0, 0.4) and math.isnan(one["sd_ddof1"])
    assert none["clients"] == 0 and none.drop("clients").isna().all()


def test_fairer_is_the_smaller_variance():
    assert fairer(pd.Series([0.4, 0.5]), pd.Series([0.1, 0.9]))
    assert not fairer(pd.Series([0.1, 0.9]), pd.Series([0.4, 0.5]))


def test_deviations_over_clients_seeds_and_settings_are_apart(final):
    """Two settings with two seeds of three clients each."""
    seeds = {"a": [[0.1, 0.2, 0.6], [0.3, 0.5, 0.7]], "b": [[0.8, 0.8, 0.8], [0.9, 0.9, 0.6]]}
    settings = {label: [final(*v, seed=i) for i, v in enumerate(runs)] for label, runs in seeds.items()}
    table = variation(settings).set_index(["setting", "over"])
    for label, runs in seeds.items():
        clients = statistics.mean(statistics.stdev(run) for run in runs)
        assert table.loc[(label, "clients"), "sd_ddof1"] == pytest.approx(clients)
        over_seeds = [statistics.mean(run) for run in runs]
        assert table.loc[(label, "seeds"), "sd_ddof1"] == pytest.approx(statistics.stdev(over_seeds))
        assert table.loc[(label, "seeds"), "sd_ddof0"] == pytest.approx(statistics.pstdev(over_seeds))
    means = [np.mean(runs) for runs in seeds.values()]
    assert table.loc[("all", "settings"), "sd_ddof1"] == pytest.approx(statistics.stdev(means))
    assert table["count"].tolist() == [3, 2, 3, 2, 2]


def test_deviation_of_a_single_seed_or_setting_is_no_number(final):
    table = variation({"a": [final(0.2, 0.4)]}).set_index("over")
    assert table.loc["clients", "sd_ddof1"] == pytest.approx(statistics.stdev([0.2, 0.4]))
    assert table.loc[["seeds", "settings"], ["sd_ddof0", "sd_ddof1"]].isna().all().all()
