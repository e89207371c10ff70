"""Whose steps are started next, and how many at once."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from idiolect.engines.cohort.cuda.stage_plan import ProgramPlan

__all__ = ["BUNDLES", "turns"]

BUNDLES = (8, 4, 2, 1)  # steps that may be started at once


def turns(programs: Sequence[ProgramPlan]) -> Iterator[tuple[ProgramPlan, int, int]]:
    """Whose steps are started next, from which on and how many: who has most before it goes first.

    They end where a job begins.
    """
    ends = [sorted({program.n_steps, *(job.start for job in program.jobs)}) for program in programs]
    waiting = [(-program.n_steps, place, 0) for place, program in enumerate(programs)]
    heapq.heapify(waiting)
    while waiting:
        _, place, t = waiting[0]
        program = programs[place]
        left = next(end for end in ends[place] if end > t) - t
        count = next(count for count in BUNDLES if count <= left)
        yield program, t, count
        t += count
        if t < program.n_steps:
            heapq.heapreplace(waiting, (t - program.n_steps, place, t))
        else:
            heapq.heappop(waiting)
