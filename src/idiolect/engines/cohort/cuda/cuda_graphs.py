"""A traced step on memory that stays where it is, run again and again: on CUDA as graphs of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from idiolect.engines.cohort.cuda.batch_copies import Dealer, Deck
from idiolect.engines.cohort.cuda.bundles import TRIALS, captured, side_by_side, stream_of
from idiolect.engines.cohort.cuda.lane_memory import LaneMemory, copy_all
from idiolect.engines.cohort.cuda.lanes import Job
from idiolect.engines.cohort.cuda.stage_plan import StagePlan
from idiolect.engines.cohort.cuda.traced_step import Step
from idiolect.engines.cohort.cuda.turns import BUNDLES, turns
from idiolect.engines.workload import Workload

__all__ = ["Replay"]

Acts = Mapping[tuple[int, int], Callable[[], None]]  # what is done before a step, by program and step


class _Program(NamedTuple):
    """What runs so many steps of some lanes."""

    dealer: Dealer  # whose memory the graphs use
    bundles: dict[int, Callable[[], Any]]


class Replay:
    """A step of all lanes, in one program or in several.

    Args:
        run: the compiled step.

    Attributes:
        buffers: what all programs read besides batches and clients' leaves, by number of the input; whoever runs it
            fills them.
        constants: what they read after all inputs.
    """

    def __init__(self, run: Callable[..., Any], step: Step, work: Workload, plan: StagePlan) -> None:
        self._run, self._roles, self._work = run, step.roles, work
        device, kinds = work.y.device, dict(enumerate(step.kinds))
        self.buffers = {
            n: torch.zeros(kinds[n].shape, dtype=kinds[n].dtype, device=device)
            for n, role in enumerate(step.roles)
            if role.kind in ("shared", "moment")
        }
        self.constants = [constant.clone() for constant in step.traced.constants]
        clients = [n for n, role in enumerate(step.roles) if role.kind == "client"]
        self._leaves = {n: number for number, n in enumerate(clients)}
        self._kinds = [(kinds[n].shape[1:], kinds[n].dtype) for n in clients]
        self._changed = step.traced.changed
        self._lanes = LaneMemory.zeros(self._kinds, plan.layout.n_programs, plan.layout.width, device)
        self._make_programs(plan)

    @cached_property
    def _seats(self) -> LaneMemory:
        """Clients in their own order, on their way to the lanes."""
        return self._lanes.clone()

    def _make_programs(self, plan: StagePlan) -> None:
        self._programs: list[_Program] = []  # the old ones' memory first
        self._deck, self._cursors = Deck(plan, TRIALS), torch.zeros_like(plan.firsts)
        self._programs = [self._program(plan, number) for number in range(plan.layout.n_programs)]

    def _program(self, plan: StagePlan, number: int) -> _Program:
        cursor = self._cursors[number : number + 1]
        dealer = Dealer(self._work, plan.shape, self._deck, cursor)
        given = {"batch": dealer.leaves, "active": [dealer.active]}
        own = self._lanes.row(number)
        inputs = [
            given[role.kind][role.place]
            if role.kind in given
            else own[self._leaves[n]]
            if n in self._leaves
            else self.buffers[n]
            for n, role in enumerate(self._roles)
        ]

        def steps(count: int) -> None:
            with torch.no_grad():
                for ahead in range(count):
                    dealer.deal(ahead)
                    self._run(*inputs, *self.constants)
                cursor.add_(count)

        if not self._work.y.is_cuda:
            steps(1)  # so that what cannot run is known now
            return _Program(dealer, {count: partial(steps, count) for count in BUNDLES})
        return _Program(dealer, captured(steps, stream_of(number, self._work.y.device)))

    def run(self, plan: StagePlan, clients: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """What the step changes, of every client after its job, by number of the input.

        Args:
            clients: every client's leaves before.
        """
        if not self._deck.holds(plan):
            self._make_programs(plan)
        self._deck.lay(plan)
        self._cursors.copy_(plan.firsts)
        own = {self._leaves[n]: leaf for n, leaf in clients.items()}
        if not plan.has_lane_for_everybody:
            after = self._run_in_turn(plan, own)
            return {n: after.leaves[self._leaves[n]].contiguous() for n in self._changed}
        if plan.lane_of is None:
            self._lanes.fill(own)
        else:
            self._seats.fill(own)
            self._lanes.seat(self._seats, plan.lane_of)
        self._run_programs(plan, {})
        return {n: self._lanes.copied(self._leaves[n], plan.lane_of) for n in self._changed}

    def _run_in_turn(self, plan: StagePlan, own: Mapping[int, Tensor]) -> LaneMemory:
        """A lane that is done takes the next client."""
        before = LaneMemory.zeros(self._kinds, len(plan.clients), 1, self._work.y.device)
        before.fill(own)
        after = before.clone()
        memories = (self._lanes, before, after)
        lanes, waiting, done = (memory.lanes(by_leaf=not plan.layout.apart) for memory in memories)
        on_lane: dict[int, Job] = {}

        def hand_over(begun: list[Job]) -> None:
            ended = [on_lane[job.lane] for job in begun if job.lane in on_lane]
            _copy(done, lanes, [(job.client, job.lane) for job in ended])
            _copy(lanes, waiting, [(job.lane, job.client) for job in begun])
            on_lane.update({job.lane: job for job in begun})

        starting: dict[tuple[int, int], list[Job]] = {}
        for program in plan.programs:
            for job in program.jobs:
                starting.setdefault((program.number, job.start), []).append(job)
        self._run_programs(plan, {place: partial(hand_over, begun) for place, begun in starting.items()})
        _copy(done, lanes, [(job.client, job.lane) for job in on_lane.values()])
        return after

    def _run_programs(self, plan: StagePlan, acts: Acts) -> None:
        """All programs side by side."""
        with side_by_side(plan.programs, self._work.y.device) as go_to:
            for program, t, count in turns(plan.programs):
                go_to(program.number)
                if act := acts.get((program.number, t)):
                    act()
                self._programs[program.number].bundles[count]()


def _copy(
    into: Sequence[Sequence[Tensor]], out_of: Sequence[Sequence[Tensor]], pairs: Sequence[tuple[int, int]]
) -> None:
    """Copies the second lane of each pair onto the first."""
    copy_all(
        [part[to] for part in into for to, _ in pairs],
        [part[of] for part in out_of for _, of in pairs],
    )
