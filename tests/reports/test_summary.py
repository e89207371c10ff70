"""The numbers of a comparison, against hand computations."""

from __future__ import annotations

import math
import statistics

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idiolect.errors import UserError
from idiolect.reports import summarise
from idiolect.statistics import worst_tenth


def test_summary_takes_the_last_round_of_the_headline(make_run) -> None:
    run = make_run(
        "MAP", personal={(1, "after"): [0.9, 0.9], (2, "after"): [0.4, 0.8]}, server={1: 0.7, 2: 0.6}
    )
    line = summarise([run]).iloc[0]
    assert line["personal_accuracy"] == pytest.approx(0.6)
    assert line["global_accuracy"] == pytest.approx(0.6)
    assert line["sd_clients"] == pytest.approx(statistics.stdev([0.4, 0.8]))
    assert line["worst_tenth"] == pytest.approx(0.4)
    assert line["bytes_down"] == pytest.approx((1000 + 2000 + 3000 + 4000) / 4)
    assert line["seconds"] == pytest.approx(4 * 0.5)
    assert (line["predictor"], line["clients"], line["seeds"]) == ("companion", 2, 1)


def test_summary_prefers_the_end_of_the_run_to_a_later_row(make_run) -> None:
    run = make_run("LU", personal={(3, "end"): [0.9, 0.7], (4, "after"): [0.1, 0.1]})
    assert summarise([run]).iloc[0]["personal_accuracy"] == pytest.approx(0.8)


def test_summary_prefers_after_to_before_in_one_round(make_run) -> None:
    run = make_run("MAP", personal={(2, "after"): [0.9, 0.7], (2, "before"): [0.1, 0.1]})
    line = summarise([run]).iloc[0]
    assert line["personal_accuracy"] == pytest.approx(0.8)
    assert line["clients"] == 2


def test_summary_without_a_global_model_is_nan(make_run) -> None:
    assert math.isnan(
        summarise([make_run("Local", personal={(1, "after"): [1.0]})]).iloc[0]["global_accuracy"]
    )


def test_summary_averages_seeds_and_gives_their_sd(make_run) -> None:
    means = {0: 0.5, 1: 0.6, 2: 0.9}
    runs = [make_run("MAP", seed, {(1, "after"): [mean - 0.1, mean + 0.1]}) for seed, mean in means.items()]
    summary = summarise(runs)
    assert len(summary) == 1
    line = summary.iloc[0]
    assert line["seeds"] == 3
    assert line["personal_accuracy"] == pytest.approx(2.0 / 3)
    assert line["personal_accuracy_sd_seeds"] == pytest.approx(statistics.stdev(means.values()))
    assert line["sd_clients"] == pytest.approx(statistics.stdev([0.0, 0.2]))


def test_summary_keeps_different_settings_apart_and_names_them(make_run) -> None:
    values = {(1, "after"): [0.5]}
    runs = [make_run("MAP", personal=values, spec={"rounds": 4, "method": {"alpha": a}}) for a in (0.5, 0.9)]
    assert list(summarise(runs)["method"]) == ["MAP (alpha=0.5)", "MAP (alpha=0.9)"]


def test_summary_keeps_different_datasets_apart(make_run) -> None:
    values = {(1, "after"): [0.5]}
    runs = [make_run("MAP", personal=values, dataset=name) for name in ("digits", "letters")]
    assert summarise(runs)[["scene", "method"]].values.tolist() == [["digits", "MAP"], ["letters", "MAP"]]


def test_summary_ignores_the_seed_inside_the_spec(make_run) -> None:
    values = {(1, "after"): [0.5]}
    runs = [make_run("MAP", seed, values, spec={"rounds": 4, "seed": seed}) for seed in (0, 1)]
    assert list(summarise(runs)["seeds"]) == [2]


def test_summary_with_a_seed_twice_is_refused_by_name(make_run) -> None:
    run = make_run("MAP", 3, {(1, "after"): [0.5]})
    with pytest.raises(UserError, match="MAP has two runs with seed 3"):
        summarise([run, run])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=45))
def test_worst_tenth_is_the_mean_of_the_smallest(values: list[float]) -> None:
    count = -(-len(values) // 10)
    assert worst_tenth(pd.Series(values)) == pytest.approx(sum(sorted(values)[:count]) / count)
