"""Stage plans: the batches of one stage for a group of clients, laid out on lanes and sent to the device at once.

A plan is made when a stage asks for it, or ahead of time while the device is busy.

Shapes: K lane groups, T steps of all of them, U batches of a step, L lanes of a lane group, B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from idiolect.core import Program, Stage
from idiolect.engines.cohort.cuda.lane_assignment import Job, Layout, assign, choose_layout
from idiolect.engines.device_data import Workload, sent
from idiolect.federation import BatchPlan

__all__ = ["LaneGroup", "Planner", "StagePlan", "StepShape"]

MEASURING_PLANS = 8  # most plans of measuring stages that are kept
AHEAD_BYTES = 64 << 20  # no more rounds are planned ahead while plans hold this much memory

_Key = tuple[int, str, tuple[int, ...]]  # round, stage, clients
_ClientPlan = tuple[BatchPlan, dict[str, np.ndarray]]  # batches, and draws by part


class StepShape(NamedTuple):
    """Sizes of one step: U batches, L lanes, B rows per batch."""

    n_batches: int
    n_lanes: int
    n_rows: int

    @property
    def table_width(self) -> int:
        """Numbers that say what a step reads: index, mask and key of each batch, then which lanes are active."""
        return self.n_batches * 3 * self.n_lanes * self.n_rows + self.n_lanes


class LaneGroup(NamedTuple):
    """The work of lanes that run in step.

    Args:
        first: its first row in the table, where the steps of all lane groups follow each other.
    """

    number: int
    jobs: list[Job]
    first: int
    n_steps: int


class StagePlan(NamedTuple):
    """The work of one stage for a group of clients, with the batches on the device.

    Args:
        clients: the clients of the group.
        shape: the sizes of one step of a lane group.
        lane_groups: the lane groups that have steps.
        table: what each step reads [T, table_width].
        draws: by part, the draws of each step [T, L, draws].
        firsts: each lane group's first step in the table [K].
        lane_of: the lane of each client [C] if every client has a lane of its own, apart from the others; else None.
        with_keys: whether the table holds the keys of examples.
        room: the most steps that any group of the population makes, so that memory for them is allocated once.
    """

    clients: list[int]
    layout: Layout
    shape: StepShape
    lane_groups: list[LaneGroup]
    table: Tensor
    draws: dict[str, Tensor]
    firsts: Tensor
    lane_of: Tensor | None
    with_keys: bool
    room: int

    @property
    def has_lane_for_everybody(self) -> bool:
        return self.layout.n_lanes == len(self.clients)


class _Begun(NamedTuple):
    """Batches and draws of the first clients of a group, with the keys of examples or without."""

    with_keys: bool
    own: list[_ClientPlan]


@dataclass
class Planner:
    """Makes the stage plans of a run.

    Args:
        reads_keys: by stage, whether its step depends on the keys of examples; a stage that is missing may.
    """

    work: Workload
    reads_keys: dict[str, bool] = field(default_factory=dict)
    _ahead: dict[_Key, StagePlan] = field(default_factory=dict)
    _begun: dict[_Key, _Begun] = field(default_factory=dict)
    _measured: dict[Hashable, StagePlan] = field(default_factory=dict)
    _extents: dict[Hashable, tuple[Layout, int, int]] = field(default_factory=dict)

    def look_ahead(
        self, program: Program, clients: list[int], stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Makes the plans of a coming round, except those that are made, while plans ahead hold little memory.

        Args:
            stop: asked before each client that trains; what is begun by then is finished when it is needed.
        """
        plan = program.method.plan(program.scene, program.clock)
        for stage in (*plan.before, *plan.after):
            key = _key(program, stage, clients)
            held = sum(plan.table.nbytes for plan in self._ahead.values())
            if key in self._ahead or held >= AHEAD_BYTES:
                continue
            if stage.measure is None:
                begun = self._begun.setdefault(key, _Begun(self._with_keys(stage), []))
                for client in clients[len(begun.own) :]:
                    if stop():
                        return
                    begun.own.append(self.work.plan(program, stage, client, begun.with_keys))
            self._ahead[key] = self.make(program, stage, clients)

    def forget(self) -> None:
        """Drops all plans, which hold memory of the device."""
        self._ahead.clear()
        self._begun.clear()
        self._measured.clear()

    def plan(self, work: Workload, program: Program, stage: Stage, clients: list[int]) -> StagePlan:
        """Returns the plan that was made ahead, or a new one; drops plans of rounds that are over."""
        ahead = self._ahead.pop(_key(program, stage, clients), None)
        for made in (self._ahead, self._begun):
            for key in [key for key in made if key[0] < program.clock.round]:
                del made[key]
        return ahead or self.make(program, stage, clients)

    def make(self, program: Program, stage: Stage, clients: list[int]) -> StagePlan:
        """Makes the plan of a stage; the plans of measuring stages are kept."""
        if stage.measure is None:
            return self._laid_out(program, stage, clients, self._with_keys(stage))
        # Rows are measured in their own order, which is the same in every round.
        key = (stage.split, stage.batches_per_step, tuple(clients), program.scene)
        if key not in self._measured:
            if len(self._measured) == MEASURING_PLANS:
                self._measured.pop(next(iter(self._measured)))
            self._measured[key] = self._laid_out(program, stage, clients, with_keys=True)
        return self._measured[key]

    def _laid_out(self, program: Program, stage: Stage, clients: list[int], with_keys: bool) -> StagePlan:
        begun = self._begun.pop(_key(program, stage, clients), None)
        own = begun.own if begun and begun.with_keys >= with_keys else []
        rest = [self.work.plan(program, stage, client, with_keys) for client in clients[len(own) :]]
        layout, n_rows, room = self._extent(program, stage, len(clients))
        shape = StepShape(stage.batches_per_step, layout.width, n_rows)
        return _lay_out(clients, layout, shape, [*own, *rest], self.work.like, with_keys, room)

    def _with_keys(self, stage: Stage) -> bool:
        return self.reads_keys.get(stage.name, True)

    def _extent(self, program: Program, stage: Stage, n_clients: int) -> tuple[Layout, int, int]:
        """Returns the layout, the rows of a batch, and the most steps; all are the same in every round."""
        pace = (stage.split, stage.epochs, stage.share, stage.steps, stage.min_steps, stage.has_minimum)
        key = (*pace, stage.rounding, stage.batches_per_step, stage.measure is None, program.scene, n_clients)
        if key not in self._extents:
            everyone, n_rows = self.work.extent(program, stage)
            layout = choose_layout(everyone, n_clients)
            self._extents[key] = layout, n_rows, layout.most_steps(everyone, n_clients)
        return self._extents[key]


def _key(program: Program, stage: Stage, clients: list[int]) -> _Key:
    return program.clock.round, stage.name, tuple(clients)


def _lay_out(
    clients: list[int],
    layout: Layout,
    shape: StepShape,
    own: Sequence[_ClientPlan],
    like: Tensor,
    with_keys: bool,
    room: int,
) -> StagePlan:
    """Lays the clients' batches out on lanes and sends them to the device.

    Args:
        own: batches and draws of each client.
        like: a number of the run's precision on its device.
    """
    jobs = assign([len(plan.index) // shape.n_batches for plan, _ in own], layout)
    groups = _lane_groups(jobs, shape.n_lanes)
    n_steps = sum(group.n_steps for group in groups)
    memory = torch.empty(max(n_steps, room), shape.table_width, dtype=torch.int64, pin_memory=like.is_cuda)
    on_host = memory[:n_steps]
    drawn = _fill(on_host.numpy(), shape, groups, own, with_keys)
    firsts = np.zeros(layout.n_groups, np.int64)
    for group in groups:
        firsts[group.number] = group.first
    found = StagePlan(
        clients=clients,
        layout=layout,
        shape=shape,
        lane_groups=groups,
        table=on_host.to(like.device, non_blocking=True),
        draws={part: sent(array, like.device).to(like.dtype) for part, array in drawn.items()},
        firsts=sent(firsts, like.device),
        lane_of=None,
        with_keys=with_keys,
        room=room,
    )
    if not (layout.apart and found.has_lane_for_everybody):
        return found
    return found._replace(lane_of=sent(_lane_of(jobs, len(clients)), like.device))


def _fill(
    table: np.ndarray,
    shape: StepShape,
    groups: Sequence[LaneGroup],
    own: Sequence[_ClientPlan],
    with_keys: bool,
) -> dict[str, np.ndarray]:
    """Writes what each step reads into its row of the table, and returns the draws of each step."""
    n_steps = len(table)
    table.fill(0)  # by this thread: waking PyTorch's others takes milliseconds
    rows = table[:, : -shape.n_lanes].reshape(n_steps, shape.n_batches, 3, shape.n_lanes, shape.n_rows)
    drawn = {part: np.zeros((n_steps, shape.n_lanes, first.shape[1])) for part, first in own[0][1].items()}
    for group in groups:
        for client, lane, start, stop in group.jobs:
            plan, draws = own[client]
            here, place = slice(group.first + start, group.first + stop), lane % shape.n_lanes
            for kind, array in enumerate(plan[: 3 if with_keys else 2]):
                used = array[: (stop - start) * shape.n_batches, : shape.n_rows]
                rows[here, :, kind, place, : used.shape[1]] = used.reshape(stop - start, shape.n_batches, -1)
            table[here, place - shape.n_lanes] = 1
            for part, numbers in draws.items():
                drawn[part][here, place] = numbers
    return drawn


def _lane_groups(jobs: Sequence[Job], n_lanes: int) -> list[LaneGroup]:
    own: dict[int, list[Job]] = {}
    for job in jobs:
        own.setdefault(job.lane // n_lanes, []).append(job)
    found, first = [], 0
    for number, its_jobs in own.items():
        n_steps = max(job.stop for job in its_jobs)
        found.append(LaneGroup(number, its_jobs, first, n_steps))
        first += n_steps
    return found


def _lane_of(jobs: Sequence[Job], n_clients: int) -> np.ndarray:
    """Returns the lane of each client; clients without steps get the lanes that are left."""
    lanes = {job.client: job.lane for job in jobs}
    idle = iter(sorted(set(range(n_clients)) - set(lanes.values())))
    return np.array([lanes[client] if client in lanes else next(idle) for client in range(n_clients)])
