"""Tables over clients and methods, costs of a target, and pictures' data, against hand computations."""

from __future__ import annotations

import math
import statistics

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idiolect.errors import UserError
from idiolect.records import RowBuffer, RowKind
from idiolect.statistics import (
    alpha_profile,
    change_histogram,
    changes,
    client_table,
    cost_to_target,
    round_of_target,
    teacher_rounds,
    tradeoff,
    user_table,
)


def fixed(final, values: list[tuple[float, ...]], **facts):
    """Runs on one partition with the seeds 0, 1, ..."""
    return [final(*each, seed=seed, data_seed=0, **facts) for seed, each in enumerate(values)]


def test_user_table_averages_runs_by_user_and_spreads_within_a_run(final):
    groups = {
        "A": fixed(final, [(0.1, 0.5), (0.3, 0.9)]),
        "B": fixed(final, [(0.4, 0.4), (0.6, 0.2)]),
    }
    table = user_table(groups)
    assert table.loc[[0, 1], "A"].tolist() == pytest.approx([0.2, 0.7])
    assert table.loc[[0, 1], "B"].tolist() == pytest.approx([0.5, 0.3])
    assert table.loc["Avg"].tolist() == pytest.approx([0.45, 0.4])
    within = [statistics.stdev([0.1, 0.5]), statistics.stdev([0.3, 0.9])]
    assert table.loc["SD", "A"] == pytest.approx(statistics.mean(within))
    assert user_table(groups, ddof=0).loc["SD", "A"] == pytest.approx(statistics.mean(within) / math.sqrt(2))


def test_clients_that_every_seed_redraws_are_not_averaged(final):
    runs = {"A": [final(0.1, 0.5, seed=0), final(0.3, 0.9, 0.6, seed=1)]}
    assert client_table(runs)["A"].to_dict() == {
        (0, 0): 0.1,
        (0, 1): 0.5,
        (1, 0): 0.3,
        (1, 1): 0.9,
        (1, 2): 0.6,
    }
    table = user_table(runs)
    assert list(table.index[:3]) == [
        "data seed 0, client 0",
        "data seed 0, client 1",
        "data seed 1, client 0",
    ]
    within = [statistics.stdev([0.1, 0.5]), statistics.stdev([0.3, 0.9, 0.6])]
    assert table.loc["SD", "A"] == pytest.approx(statistics.mean(within))
    named = [
        final(0.1, 0.5, seed=0, client_names=["a", "b"]),
        final(0.3, 0.9, seed=1, client_names=["a", "b"]),
    ]
    assert client_table({"A": named})["A"].to_dict() == pytest.approx({0: 0.2, 1: 0.7})  # the same two people


def test_methods_with_other_seeds_or_clients_are_not_paired(final):
    with pytest.raises(UserError, match="A and B do not have the same seeds and clients"):
        client_table({"A": [final(0.1, seed=0)], "B": [final(0.1, seed=1)]})
    with pytest.raises(UserError, match="A and B do not have the same seeds and clients"):
        client_table({"A": [final(0.1)], "B": [final(0.1, 0.2)]})
    with pytest.raises(UserError, match="the runs of A do not have the same clients"):
        client_table({"A": fixed(final, [(0.1,), (0.1, 0.2)])})


def test_changes_are_by_client_with_seeds_averaged(final):
    found = changes(fixed(final, [(0.5, 0.2), (0.7, 0.2)]), fixed(final, [(0.1, 0.3), (0.3, 0.5)]))
    assert found.to_dict() == pytest.approx({0: 0.4, 1: -0.2})


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.integers(2, 9))
def test_histogram_counts_everyone_once_and_losers_on_the_left(values, bins):
    found = change_histogram(pd.Series(values), bins)
    assert found.counts.sum() == len(values)
    assert found.below == sum(v < 0 for v in values)
    middle = len(found.counts) // 2
    assert found.edges[middle] == 0
    assert found.counts[:middle].sum() == found.below


CURVE = pd.Series({1: 0.2, 2: 0.6, 3: 0.4, 4: 0.7, 5: 0.7})


@pytest.mark.parametrize(
    ("target", "window", "reached"),
    [
        (0.6, 1, 2),
        (0.5, 2, 3),
        (0.55, 2, 4),
        (0.6, 3, 5),
        (0.2, 1, 1),
        (0.2, 2, 2),
        (0.75, 1, None),
        (0.1, 6, None),
    ],
)
def test_target_is_reached_by_the_mean_of_the_last_measurements(target, window, reached):
    assert round_of_target(CURVE, target, window=window) == reached


def test_target_of_a_loss_is_reached_from_above():
    assert round_of_target(1 - CURVE, 0.45, higher_is_better=False) == 2


def test_cost_sums_bytes_up_to_the_round_of_the_target(make_run):
    rounds = make_run(rounds=5).rounds
    assert cost_to_target(CURVE, rounds, 0.65) == (4, 100 + 200 + 300 + 400, 10 + 20 + 30 + 40, None, None)
    assert cost_to_target(CURVE, rounds, 0.9) == (None,) * 5


def test_alpha_profile_is_over_clients_then_seeds(make_run):
    values = {0: ([0.1, 0.5], [0.2, 0.4]), 1: ([0.3, 0.3], [0.8, 1.0])}
    runs = [
        make_run(
            {
                (4, "mix(0.0)", "before", "all"): dict(enumerate(zero)),
                (4, "mix(1.0)", "before", "all"): dict(enumerate(one)),
                (4, "mix(validated)", "before", "all"): {0: 1.0, 1: 1.0},
                (2, "mix(0.0)", "before", "all"): {0: 0.0, 1: 0.0},
            },
            seed=seed,
        )
        for seed, (zero, one) in values.items()
    ]
    table = alpha_profile(runs)
    assert table["alpha"].tolist() == [0.0, 1.0]
    assert table["mean"].tolist() == pytest.approx([0.3, 0.6])
    expected = statistics.mean([statistics.stdev([0.1, 0.5]), 0.0])
    assert table["sd_clients_ddof1"][0] == pytest.approx(expected)
    assert table["sd_clients_ddof0"][1] == pytest.approx(0.1)
    assert (table["clients"].tolist(), table["seeds"].tolist()) == ([2, 2], [2, 2])


def test_alpha_profile_without_mixtures_is_refused(final):
    with pytest.raises(UserError, match=r"predictors mix\(0\.0\)"):
        alpha_profile([final(0.5)])


def test_teacher_rounds_are_averaged_over_runs(make_run):
    def remarked(*rounds: int):
        rows = RowBuffer()
        for client, number in enumerate(rounds):
            rows.add(9, client, RowKind("valid", "companion", "end", "all", "teacher round"), number)
        return make_run(more=rows)

    table = teacher_rounds([remarked(3, 9), remarked(5, 4)])
    assert table["round"].to_dict() == {0: 4.0, 1: 6.5}
    assert table["runs"].tolist() == [2, 2]
    with pytest.raises(UserError, match="plain has no teacher rounds"):
        teacher_rounds([make_run(name="plain")])


def test_tradeoff_has_a_point_per_method(make_run):
    def point(server: float | None, *values: float, seed: int = 0):
        curve = {2: 0.0, 4: server} if server is not None else None
        return make_run({(4, "own", "before", "all"): dict(enumerate(values))}, server=curve, seed=seed)

    groups = {"A": [point(0.5, 0.2, 0.4), point(0.7, 0.4, 0.6, seed=1)], "B": [point(None, 0.9)]}
    table = tradeoff(groups).set_index("method")
    assert table.loc["A", ["aggregation", "personalisation"]].tolist() == pytest.approx([0.6, 0.4])
    assert table.loc["A", "aggregation_sd_seeds"] == pytest.approx(statistics.stdev([0.5, 0.7]))
    assert math.isnan(table.loc["B", "aggregation"]) and table.loc["B", "personalisation"] == 0.9
