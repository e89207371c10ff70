"""Which rows a number is made from."""

from __future__ import annotations

import pytest

from idiolect.errors import UserError
from idiolect.records import RowBuffer, RowKind
from idiolect.statistics import client_scores, curve, higher_is_better, measured, server_curve


def test_latest_moment_of_each_round_counts_unless_one_is_asked_for(make_run):
    run = make_run(
        {
            (1, "own", "before", "all"): {0: 0.1, 1: 0.3},
            (2, "own", "before", "all"): {0: 0.2, 1: 0.4},
            (2, "own", "after", "all"): {0: 0.5, 1: 0.9},
        }
    )
    assert curve(run).to_dict() == pytest.approx({1: 0.2, 2: 0.7})
    assert curve(run, moment="before").to_dict() == pytest.approx({1: 0.2, 2: 0.3})
    assert client_scores(run).to_dict() == {0: 0.5, 1: 0.9}


def test_end_of_the_run_is_no_point_of_the_curve_but_the_final_value(make_run):
    run = make_run({(2, "own", "before", "all"): {0: 0.2}, (2, "own", "end", "all"): {0: 0.8}})
    assert curve(run).to_dict() == {2: 0.2}
    assert curve(run, moment="end").to_dict() == {2: 0.8}
    assert client_scores(run).to_dict() == {0: 0.8}


def test_other_populations_predictors_splits_and_metrics_stay_out(make_run):
    decoys = RowBuffer()
    decoys.add(4, 0, RowKind("test", "own", "before", "selected", "accuracy"), 0.0)
    decoys.add(4, 0, RowKind("test", "other", "before", "all", "accuracy"), 0.0)
    decoys.add(4, 0, RowKind("valid", "own", "before", "all", "accuracy"), 0.0)
    decoys.add(4, 0, RowKind("test", "own", "before", "all", "loss"), 7.0)
    decoys.add(4, 0, RowKind("test", "own", "before", "new", "accuracy"), 0.3)
    run = make_run({(4, "own", "before", "all"): {0: 0.6}}, more=decoys, server={4: 0.9})
    assert measured(run)["value"].tolist() == [0.6]
    assert curve(run).to_dict() == {4: 0.6}
    assert client_scores(run, metric="loss").to_dict() == {0: 7.0}
    assert client_scores(run, population="new").to_dict() == {0: 0.3}
    assert server_curve(run).to_dict() == {4: 0.9}


def test_selected_rows_of_a_choice_are_those_of_the_member_picked(make_run):
    run = make_run(
        {
            (1, "mix(0.0)", "after", "selected"): {0: 0.1},
            (1, "mix(0.5)", "after", "selected"): {0: 0.7},
        },
        headline="mix(validated)",
        choices={"mix(validated)": "mix(0.5)", "mix(oracle)": "mix(0.0)"},
    )
    assert measured(run, population="selected")["value"].tolist() == [0.7]


def test_manifest_says_which_way_a_metric_is_better(make_run):
    assert higher_is_better(make_run(), "accuracy") and not higher_is_better(make_run(), "loss")
    assert higher_is_better(make_run(metrics={}), "accuracy")
    with pytest.raises(UserError, match="old does not say which way the metric 'loss' is better"):
        higher_is_better(make_run(metrics={}, name="old"), "loss")
