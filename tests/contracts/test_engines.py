"""Engines agree on every number; the order of clients, chunks and the number of workers change none."""

from __future__ import annotations

from typing import Any

import pytest

from idiolect.experiments.rounds.simulated_clients import Simulation

from .midway import answers
from .sameness import FLOAT32, assert_equal, assert_exact, numbers, states
from .tiny import finished_run

SOME = (
    "fedavg",
    "fedper(count=2, fine_tune_epochs=1)",
    "fedphp",
    "map",
    "map(preset=official)",
    "superfed_lm",
)
FEW_STEPS = {"precision": "float32", "rounds": 1, "local_epochs": 0.5, "min_local_steps": 2}


def test_cohort_equals_loop(method: str) -> None:
    loop, cohort = finished_run(method), finished_run(method, "cohort")
    assert_equal(states(cohort), states(loop))
    _assert_same_numbers(cohort, loop)


def test_pool_is_exactly_loop(method: str) -> None:
    loop, pool = finished_run(method), finished_run(method, "pool")
    assert_exact(states(pool), states(loop))
    assert numbers(pool) == numbers(loop)


@pytest.mark.parametrize("engine", ["cohort", "pool"])
@pytest.mark.parametrize("name", SOME)
def test_engines_agree_in_float32_over_few_steps(name: str, engine: str) -> None:
    loop, other = finished_run(name, **FEW_STEPS), finished_run(name, engine, **FEW_STEPS)
    assert_equal(states(other), states(loop), FLOAT32)


def test_order_of_clients_changes_nothing(method: str) -> None:
    assert_exact(answers(method, "loop", backwards=True).found, answers(method, "loop").found)


def test_order_and_chunks_of_cohort_change_nothing(method: str) -> None:
    assert_equal(answers(method, "cohort 2", backwards=True).found, answers(method, "loop").found)


def test_order_and_number_of_workers_change_nothing(method: str) -> None:
    assert_exact(answers(method, "pool 3", backwards=True).found, answers(method, "loop").found)


def _assert_same_numbers(ours: Simulation, theirs: Simulation) -> None:
    for table, expected in numbers(theirs).items():
        found = numbers(ours)[table]
        assert [_words(row) for row in found] == [_words(row) for row in expected]
        for row, wanted in zip(found, expected, strict=True):
            assert _floats(row) == pytest.approx(_floats(wanted), rel=1e-9, abs=1e-12)


def _words(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not isinstance(value, float)}


def _floats(row: dict[str, Any]) -> dict[str, float]:
    return {key: value for key, value in row.items() if isinstance(value, float)}
