"""Declared predictors evaluate, and nothing is ever chosen on test data."""

from __future__ import annotations

import math
from typing import Any

from idiolect.experiments.rounds.simulated_clients import Simulation

from .altered import with_other_test_data
from .sameness import assert_exact, numbers, states
from .tiny import TINY, finished_run, make_engine, play


def test_headline_is_evaluated_on_every_client(method: str) -> None:
    run = finished_run(method)
    last = [row for row in numbers(run)["rows"] if row["round"] == TINY.rounds and row["population"] == "all"]
    headline = [
        row for row in last if row["predictor"] == run.setting.method.headline and row["split"] == "test"
    ]
    assert {row["client"] for row in headline if row["metric"] == "accuracy"} == set(range(TINY.clients))
    assert {row["metric"] for row in headline} >= {"accuracy", "loss"}


def test_every_number_is_finite_and_accuracies_are_shares(method: str) -> None:
    found = numbers(finished_run(method, evaluate_every=1))
    assert all(math.isfinite(row["value"]) for row in found["rows"])
    assert all(math.isfinite(row["train_loss"]) for row in found["rounds"])
    accuracies = [row["value"] for row in found["rows"] if row["metric"] == "accuracy"]
    assert accuracies and all(0 <= value <= 1 for value in accuracies)


def test_test_data_change_nothing_but_test_scores(method: str) -> None:
    run, other = finished_run(method), retested(method, 1)
    assert_exact(states(other), states(run))
    assert numbers(other)["rounds"] == numbers(run)["rounds"]
    assert _seen(other) == _seen(run)
    assert _tests(other) != _tests(run)
    assert {name: pick for name, pick in other.picks.items() if "oracle" not in name} == {
        name: pick for name, pick in run.picks.items() if "oracle" not in name
    }


def test_oracle_alone_follows_the_test_data() -> None:
    """The validated choice holds whatever the test data say; that they would move it, the oracle shows."""
    runs = [finished_run("superfed_mm"), *(retested("superfed_mm", shift) for shift in (1, 2, 3))]
    assert len({run.picks["mix(validated)"] for run in runs}) == 1
    assert len({run.picks["mix(oracle)"] for run in runs}) > 1


def retested(name: str, shift: int) -> Simulation:
    setting = with_other_test_data(finished_run(name).setting, shift)
    return play(setting, make_engine("loop", setting))


def _tests(run: Simulation) -> list[dict[str, Any]]:
    return [row for row in numbers(run)["rows"] if row["split"] in ("test", "server")]


def _seen(run: Simulation) -> list[dict[str, Any]]:
    return [row for row in numbers(run)["rows"] if row["split"] not in ("test", "server")]
