"""A pick says what it was made on; on test data it is an oracle."""

from __future__ import annotations

import pandas as pd
import pytest

from idiolect.errors import UserError
from idiolect.records import RowBuffer, RowKind
from idiolect.statistics import best_and_last, best_round, best_setting, pick

JUDGED, REPORTED = pd.Series({"a": 0.9, "b": 0.9, "c": 0.1}), pd.Series({"a": 0.2, "b": 0.3, "c": 0.8})


@pytest.mark.parametrize(
    ("split", "rule"), [("valid", "validated"), ("test", "oracle"), ("server", "oracle")]
)
def test_pick_reports_the_value_at_the_best_and_names_the_rule(split, rule):
    assert pick(JUDGED, REPORTED, split=split) == ("a", 0.2, rule)
    assert pick(JUDGED, REPORTED, split=split, higher_is_better=False) == ("c", 0.8, rule)


def test_pick_on_anything_else_is_refused():
    with pytest.raises(UserError, match="split must be one of valid, test, server"):
        pick(JUDGED, REPORTED, split="train")
    with pytest.raises(UserError, match="nothing measured on the split 'valid'"):
        pick(JUDGED[:0], REPORTED, split="valid")


def test_best_point_of_a_test_curve_is_called_oracle():
    points = pd.Series({1: 0.2, 2: 0.8, 3: 0.5})
    table = best_and_last(points)
    assert table.loc["best (oracle)"].tolist() == [2, 0.8] and table.loc["last"].tolist() == [3, 0.5]
    assert set(best_and_last(points, split="server").index) == {"last", "best (oracle)"}
    assert set(best_and_last(points, split="valid").index) == {"last", "best (validated)"}
    assert best_and_last(points, higher_is_better=False).loc["best (oracle)", "round"] == 1


def both_splits(make_run, test: dict[int, float], valid: dict[int, float], **options):
    rows = RowBuffer()
    for split, values in (("test", test), ("valid", valid)):
        for round, value in values.items():
            rows.add(round, 0, RowKind(split, "own", "before", "all", "accuracy"), value)
    return make_run(more=rows, **options)


def test_best_round_looks_at_validation_and_reports_the_test_value(make_run):
    run = both_splits(make_run, {1: 0.2, 2: 0.9, 3: 0.4}, {1: 0.1, 2: 0.2, 3: 0.3})
    assert best_round(run) == (3, 0.4, "validated")
    assert best_round(run, chosen_on="test") == (2, 0.9, "oracle")


def test_best_round_without_validation_rows_is_refused_not_made_on_test(make_run):
    with pytest.raises(UserError, match="nothing measured on the split 'valid'"):
        best_round(both_splits(make_run, {1: 0.2}, {}))


def test_best_setting_looks_at_validation_and_says_oracle_otherwise(make_run):
    settings = {
        "x": [both_splits(make_run, {1: 0.5}, {1: 0.9}), both_splits(make_run, {1: 0.7}, {1: 0.7}, seed=1)],
        "y": [both_splits(make_run, {1: 0.8}, {1: 0.1}), both_splits(make_run, {1: 0.9}, {1: 0.2}, seed=1)],
    }
    assert best_setting(settings) == ("x", pytest.approx(0.6), "validated")
    assert best_setting(settings, chosen_on="test") == ("y", pytest.approx(0.85), "oracle")
