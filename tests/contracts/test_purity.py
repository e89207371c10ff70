"""What an engine is given stays as it was; looking at a run does not change it."""

from __future__ import annotations

from .midway import answers
from .sameness import assert_exact, numbers, states
from .tiny import TINY, finished_run


def test_loop_leaves_its_inputs_alone(method: str) -> None:
    asked = answers(method, "loop")
    assert_exact(asked.inputs_after, asked.inputs_before)


def test_cohort_leaves_its_inputs_alone(method: str) -> None:
    asked = answers(method, "cohort 2", backwards=True)
    assert_exact(asked.inputs_after, asked.inputs_before)


def test_evaluation_changes_no_state_and_no_later_number(method: str) -> None:
    assert TINY.evaluate_every == TINY.rounds
    once, often = finished_run(method), finished_run(method, evaluate_every=1)
    assert_exact(states(often), states(once))
    assert often.picks == once.picks
    assert numbers(often)["rounds"] == numbers(once)["rounds"]
    rows = numbers(often)["rows"]
    last = [row for row in rows if row["round"] == TINY.rounds]
    assert last == numbers(once)["rows"]
    assert len(last) < len(rows)
