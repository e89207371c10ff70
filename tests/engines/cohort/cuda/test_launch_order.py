"""Whose steps are started next: every step once, in order, the longest program first."""

from __future__ import annotations

from idiolect.engines.cohort.cuda.lanes import Job
from idiolect.engines.cohort.cuda.stage_plan import ProgramPlan
from idiolect.engines.cohort.cuda.turns import BUNDLES, turns


def plan(number: int, *starts: int, n_steps: int) -> ProgramPlan:
    ends = [*starts[1:], n_steps]
    jobs = [Job(n, number, start, end) for n, (start, end) in enumerate(zip(starts, ends, strict=True))]
    return ProgramPlan(number, jobs, 0, n_steps)


def test_every_step_is_started_once_and_in_order():
    programs = [plan(0, 0, n_steps=19), plan(1, 0, 3, 4, n_steps=13), plan(2, 0, n_steps=1)]
    made: dict[int, int] = {}
    for program, t, count in turns(programs):
        assert t == made.get(program.number, 0) and count in BUNDLES
        made[program.number] = t + count
    assert made == {0: 19, 1: 13, 2: 1}


def test_a_bundle_ends_where_a_job_begins():
    started = [(t, t + count) for _, t, count in turns([plan(0, 0, 3, 4, n_steps=13)])]
    assert started == [(0, 2), (2, 3), (3, 4), (4, 12), (12, 13)]


def test_who_has_most_before_it_goes_first():
    programs = [plan(0, 0, n_steps=4), plan(1, 0, n_steps=20)]
    assert [(program.number, t) for program, t, _ in turns(programs)] == [(1, 0), (1, 8), (0, 0), (1, 16)]
