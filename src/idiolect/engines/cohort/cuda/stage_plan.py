"""The batches of one stage for a group of clients, laid out on lanes and sent to the device at once.

Shapes: K programs, T steps of all of them, U batches of a step, L lanes of a program, B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from idiolect.engines.cohort.cuda.lanes import Job, Layout, assign
from idiolect.engines.workload import sent
from idiolect.federation import BatchPlan

__all__ = ["ProgramPlan", "Shape", "StagePlan", "lay_out_batches"]


class Shape(NamedTuple):
    """Of one step: U, L and B."""

    n_batches: int
    n_lanes: int
    n_rows: int

    @property
    def ticket(self) -> int:
        """Numbers that say what a step reads: index, mask and key of each batch, then which lanes are active."""
        return self.n_batches * 3 * self.n_lanes * self.n_rows + self.n_lanes


class ProgramPlan(NamedTuple):
    """Args:
    first: its first step among those of all programs, which follow each other.
    """

    number: int
    jobs: list[Job]
    first: int
    n_steps: int


class StagePlan(NamedTuple):
    """Args:
    clients: of the group.
    shape: of a step of each program.
    programs: that have something to do.
    tickets: [T, ticket].
    draws: by part, the draws of each step [T, L, draws].
    firsts: each program's first step among them [K].
    lane_of: on which lane each client is [C], where everybody has one and it is not that of its own number.
    with_keys: the tickets hold the examples' keys.
    room: the most steps that any group of the population makes, so that memory for them is asked for once.
    """

    clients: list[int]
    layout: Layout
    shape: Shape
    programs: list[ProgramPlan]
    tickets: Tensor
    draws: dict[str, Tensor]
    firsts: Tensor
    lane_of: Tensor | None
    with_keys: bool
    room: int

    @property
    def has_lane_for_everybody(self) -> bool:
        return self.layout.n_lanes == len(self.clients)


def lay_out_batches(
    clients: list[int],
    layout: Layout,
    shape: Shape,
    plans: Sequence[BatchPlan],
    draws: Sequence[dict[str, np.ndarray]],
    like: Tensor,
    with_keys: bool,
    room: int,
) -> StagePlan:
    """Args:
    plans, draws: of each client.
    like: a number of the run's precision on its device.
    """
    jobs = assign([len(plan.index) // shape.n_batches for plan in plans], layout)
    programs = _programs(jobs, shape.n_lanes)
    n_steps = sum(program.n_steps for program in programs)
    memory = torch.empty(max(n_steps, room), shape.ticket, dtype=torch.int64, pin_memory=like.is_cuda)
    on_host = memory[:n_steps]
    tickets = on_host.numpy()
    tickets.fill(0)  # by this thread: waking PyTorch's others takes milliseconds
    rows = tickets[:, : -shape.n_lanes].reshape(n_steps, shape.n_batches, 3, shape.n_lanes, shape.n_rows)
    drawn = {part: np.zeros((n_steps, shape.n_lanes, first.shape[1])) for part, first in draws[0].items()}
    firsts = np.zeros(layout.n_programs, np.int64)
    for program in programs:
        firsts[program.number] = program.first
        for client, lane, start, stop in program.jobs:
            here, place = slice(program.first + start, program.first + stop), lane % shape.n_lanes
            for kind, array in enumerate(plans[client][: 3 if with_keys else 2]):
                used = array[: (stop - start) * shape.n_batches, : shape.n_rows]
                rows[here, :, kind, place, : used.shape[1]] = used.reshape(stop - start, shape.n_batches, -1)
            tickets[here, place - shape.n_lanes] = 1
            for part, numbers in draws[client].items():
                drawn[part][here, place] = numbers
    found = StagePlan(
        clients=clients,
        layout=layout,
        shape=shape,
        programs=programs,
        tickets=on_host.to(like.device, non_blocking=True),
        draws={part: sent(array, like.device).to(like.dtype) for part, array in drawn.items()},
        firsts=sent(firsts, like.device),
        lane_of=None,
        with_keys=with_keys,
        room=room,
    )
    if not (layout.apart and found.has_lane_for_everybody):
        return found
    return found._replace(lane_of=sent(_lane_of(jobs, len(clients)), like.device))


def _programs(jobs: Sequence[Job], n_lanes: int) -> list[ProgramPlan]:
    own: dict[int, list[Job]] = {}
    for job in jobs:
        own.setdefault(job.lane // n_lanes, []).append(job)
    found, first = [], 0
    for number, its_jobs in own.items():
        n_steps = max(job.stop for job in its_jobs)
        found.append(ProgramPlan(number, its_jobs, first, n_steps))
        first += n_steps
    return found


def _lane_of(jobs: Sequence[Job], n_clients: int) -> np.ndarray:
    """Those without steps have the lanes that are left."""
    lanes = {job.client: job.lane for job in jobs}
    idle = iter(sorted(set(range(n_clients)) - set(lanes.values())))
    return np.array([lanes[client] if client in lanes else next(idle) for client in range(n_clients)])
