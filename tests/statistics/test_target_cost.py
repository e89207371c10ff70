"""Costs up to a target, trade-offs, and when seconds can be compared."""

from __future__ import annotations

import math

import pandas as pd

from idiolect.records import RoundBuffer, Run
from idiolect.statistics import Cost, cost_to_target, on_one_machine, pareto


def rounds(flops: list[float | None]) -> pd.DataFrame:
    buffer = RoundBuffer()
    for number, some in enumerate(flops, 1):
        buffer.add(number, 1.0, 2, 10, 20, 0.5, 3, some)
    return buffer.table().to_pandas()


def test_operations_up_to_the_target_are_added():
    points = pd.Series({1: 0.2, 2: 0.7, 3: 0.9})
    assert cost_to_target(points, rounds([5.0, 6.0, 7.0]), 0.6) == Cost(2, 20, 40, 11.0)


def test_operations_are_unknown_where_a_round_did_not_count_them():
    points = pd.Series({1: 0.2, 2: 0.7})
    assert cost_to_target(points, rounds([math.nan, 6.0]), 0.6).flops is None
    assert cost_to_target(points, rounds([5.0, 6.0]).drop(columns="flops"), 0.6) == Cost(2, 20, 40, None)
    timed = rounds([5.0, 6.0, 7.0]).assign(simulated_seconds=[2.0, 3.5, 9.0])
    assert cost_to_target(points, timed, 0.6).simulated_seconds == 5.5
    assert cost_to_target(points, rounds([5.0, 6.0]), 0.8) == Cost(None, None, None, None)


def test_front_has_what_nothing_beats():
    points = {
        "dear": (9.0, 0.9),
        "bad": (5.0, 0.5),
        "cheap": (1.0, 0.6),
        "same cost": (1.0, 0.4),
        "unknown": (math.nan, 1.0),
    }
    assert pareto(points) == ["cheap", "dear"]
    assert pareto({}) == []


def test_seconds_compare_on_one_machine_only():
    def on(hardware: dict | None) -> Run:
        return Run({} if hardware is None else {"hardware": hardware}, pd.DataFrame(), pd.DataFrame())

    here, there = {"cpu": "A", "cores": 2}, {"cpu": "A", "cores": 4}
    assert on_one_machine([on(here), on(dict(here))])
    assert not on_one_machine([on(here), on(there)])
    assert not on_one_machine([on(here), on(None)]) and not on_one_machine([on(None), on(None)])
