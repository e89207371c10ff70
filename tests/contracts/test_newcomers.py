"""Clients who never train join after the last round: every method serves them, and nobody else notices."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from idiolect.engines import CohortEngine, LoopEngine
from idiolect.evaluation import METRICS
from idiolect.experiments.rounds.newcomers import join
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting

from .sameness import assert_equal, assert_exact, copied, numbers, states
from .tiny import TINY, finished_run, make_engine, play, setting_of

COUNT = 2
NEW = range(TINY.clients - COUNT, TINY.clients)


def run_with_newcomers(method: str) -> Simulation:
    return finished_run(method, newcomers=COUNT)


def rows_of(run: Simulation, *, new: bool) -> list[dict[str, Any]]:
    return [row for row in numbers(run)["rows"] if (row["population"] == "new") == new]


def test_headline_is_scored_on_every_newcomer(method: str) -> None:
    run = run_with_newcomers(method)
    rows = rows_of(run, new=True)
    headline = [
        row for row in rows if row["predictor"] == run.setting.method.headline and row["split"] == "test"
    ]
    after = [row for row in headline if row["moment"] == "after"]
    assert sorted((row["client"], row["metric"]) for row in after) == sorted(
        (c, m) for c in NEW for m in METRICS
    )
    assert {row["moment"] for row in rows} == {"before", "after"}
    assert {row["client"] for row in rows} == set(NEW) and {row["round"] for row in rows} == {TINY.rounds}
    assert all(math.isfinite(row["value"]) for row in rows)


def test_newcomers_change_nothing_for_anybody_else(method: str) -> None:
    """The run is that of a federation which never had them: server, private states, rounds and every other row."""
    run = run_with_newcomers(method)
    setting = without_newcomers(run.setting)
    other = play(setting, make_engine("loop", setting))
    assert_exact(states(run), states(other))
    assert rows_of(run, new=False) == numbers(other)["rows"]
    assert numbers(run)["rounds"] == numbers(other)["rounds"]
    assert not {row["client"] for row in rows_of(run, new=False)} & set(NEW)
    assert {name: pick for name, pick in run.picks.items() if "newcomers" not in name} == other.picks


def test_joining_leaves_the_server_as_it_is_and_keeps_nothing(method: str) -> None:
    run = run_with_newcomers(method)
    before = copied(run.state())
    first = joined(method, "loop")
    assert_exact(copied(run.state()), before)
    assert_exact(joined(method, "loop"), first)
    assert list(first[0]) == list(NEW)


def test_cohort_lets_newcomers_join_as_loop_does(method: str) -> None:
    assert_equal(joined(method, "cohort"), joined(method, "loop"))


@pytest.mark.parametrize(
    "name", ["fedavg_lu", "fedper", "map", pytest.param("superfed_mm", marks=pytest.mark.slow)]
)
def test_pool_lets_newcomers_join_exactly_as_loop_does(name: str) -> None:
    assert_exact(joined(name, "pool"), joined(name, "loop"))


@pytest.mark.parametrize("compile", ["flat", pytest.param("trace", marks=pytest.mark.slow)])
def test_steps_traced_for_members_are_not_those_of_newcomers(compile: str) -> None:
    """A member has a teacher from the start, a newcomer none: as many of either make tensors of the same shapes."""
    method = "fedphp(hpm_init=theta0, transfer_weight=0.5)"
    setting = setting_of(method, model="mlpnet(hidden=8)", newcomers=COUNT)
    cohort = CohortEngine(setting.work, compile=compile)
    run = play(setting, cohort)
    sent = run.participants.sent_to_newcomers(run.server, run.round)
    ours, theirs = (join(setting, e, sent, run.round) for e in (cohort, LoopEngine(setting.work)))
    assert setting.program(0).clock.cohort_size == COUNT
    assert_equal(ours.privates, theirs.privates)


def joined(method: str, engine: str) -> list[Any]:
    run = run_with_newcomers(method)
    worker = make_engine(engine, run.setting)
    try:
        sent = run.participants.sent_to_newcomers(run.server, run.round)
        found = join(run.setting, worker, sent, run.round)
    finally:
        worker.close()
    return [found.privates, found.before, found.after]


def without_newcomers(setting: Setting) -> Setting:
    federation = setting.federation
    members = tuple(federation.clients[client] for client in range(federation.population))
    federation = replace(federation, clients=members, newcomers=())
    return replace(setting, federation=federation, work=replace(setting.work, federation=federation))
