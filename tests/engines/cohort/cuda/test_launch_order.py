"""The order of launches: every step once, in order, the lane group with the most remaining steps first."""

from __future__ import annotations

from idiolect.engines.cohort.cuda.cuda_graphs import GRAPH_STEPS, launch_order
from idiolect.engines.cohort.cuda.lane_assignment import Job
from idiolect.engines.cohort.cuda.lane_batch_plans import LaneGroup


def plan(number: int, *starts: int, n_steps: int) -> LaneGroup:
    ends = [*starts[1:], n_steps]
    jobs = [Job(n, number, start, end) for n, (start, end) in enumerate(zip(starts, ends, strict=True))]
    return LaneGroup(number, jobs, 0, n_steps)


def test_every_step_is_started_once_and_in_order():
    groups = [plan(0, 0, n_steps=19), plan(1, 0, 3, 4, n_steps=13), plan(2, 0, n_steps=1)]
    made: dict[int, int] = {}
    for group, t, count in launch_order(groups):
        assert t == made.get(group.number, 0) and count in GRAPH_STEPS
        made[group.number] = t + count
    assert made == {0: 19, 1: 13, 2: 1}


def test_a_launch_ends_where_a_job_begins():
    started = [(t, t + count) for _, t, count in launch_order([plan(0, 0, 3, 4, n_steps=13)])]
    assert started == [(0, 2), (2, 3), (3, 4), (4, 12), (12, 13)]


def test_the_most_remaining_steps_go_first():
    groups = [plan(0, 0, n_steps=4), plan(1, 0, n_steps=20)]
    assert [(group.number, t) for group, t, _ in launch_order(groups)] == [(1, 0), (1, 8), (0, 0), (1, 16)]
