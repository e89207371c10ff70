"""A traced step on buffers that stay where they are, run again and again: on CUDA as a graph of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from idiolect.core.trees import tree_leaves
from idiolect.engines.lanes import Job
from idiolect.engines.stage_plan import StagePlan
from idiolect.engines.steps import Step
from idiolect.engines.workload import Workload

__all__ = ["Replay", "copy_all"]

Leaves = Mapping[int, Sequence[Tensor]]  # by number of the input, row by row

ROOM, SPARE = 1.25, 64 << 20  # of what a trial run took, and bytes on top, that a capture may take


class Replay:
    """One step of all lanes.

    Args:
        run: the compiled step.

    Attributes:
        buffers: what the step reads besides batches, by number of the input; whoever runs it fills them.
        constants: what it reads after all inputs.
    """

    def __init__(self, run: Callable[..., Any], step: Step, work: Workload, plan: StagePlan) -> None:
        device, shape = work.y.device, plan.shape
        self.buffers = {
            n: torch.zeros(kind.shape, dtype=kind.dtype, device=device)
            for n, (kind, role) in enumerate(zip(step.kinds, step.roles, strict=True))
            if role.kind not in ("batch", "active")
        }
        self.constants = [constant.clone() for constant in step.traced.constants]
        self._changed = step.traced.changed
        self._rows = {
            n: self.buffers[n].unbind() for n, role in enumerate(step.roles) if role.kind == "client"
        }
        self._ticket = torch.zeros_like(plan.tickets[0])
        self._draws = plan.blank_draws()
        rows = self._ticket[: -shape.n_lanes].view(shape.n_batches, 3, shape.n_lanes, shape.n_rows)

        def once() -> None:
            batches = tree_leaves([work.gather(*rows[u], self._draws) for u in range(shape.n_batches)])
            now = {"batch": batches, "active": [self._ticket[-shape.n_lanes :] > 0]}
            inputs = [
                now[role.kind][role.place] if role.kind in now else self.buffers[n]
                for n, role in enumerate(step.roles)
            ]
            with torch.no_grad():
                run(*inputs, *self.constants)

        if work.y.is_cuda:
            self._step = _captured(once)
        else:
            once()  # so that what cannot run is known now
            self._step = once

    def run(self, plan: StagePlan, clients: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """What the step changes, of every client after its job, by number of the input.

        Args:
            clients: every client's leaves before.
        """
        if plan.jobs and len(plan.jobs) == plan.shape.n_lanes == len(plan.clients):
            return self._run_abreast(plan, clients)
        lanes, rows = {n: self._rows[n] for n in clients}, _rows_of(clients)
        after = {n: clients[n].clone() for n in self._changed}
        left = _rows_of(after)
        on_lane: dict[int, Job] = {}
        starting: dict[int, list[Job]] = {}
        for job in plan.jobs:
            starting.setdefault(job.start, []).append(job)
        for t in range(len(plan.tickets)):
            if begun := starting.get(t):
                done = [on_lane[job.lane] for job in begun if job.lane in on_lane]
                _copy_rows(left, lanes, [(job.client, job.lane) for job in done])
                _copy_rows(lanes, rows, [(job.lane, job.client) for job in begun])
                on_lane |= {job.lane: job for job in begun}
            self._advance(plan, t)
        _copy_rows(left, lanes, [(job.client, job.lane) for job in on_lane.values()])
        return after

    def _run_abreast(self, plan: StagePlan, clients: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Every client from the first step on, on the lane of its own number."""
        copy_all([self.buffers[n] for n in clients], list(clients.values()))
        for t in range(len(plan.tickets)):
            self._advance(plan, t)
        return {n: self.buffers[n].clone() for n in self._changed}

    def _advance(self, plan: StagePlan, t: int) -> None:
        self._ticket.copy_(plan.tickets[t])
        if self._draws:
            copy_all(list(self._draws.values()), [plan.draws[part][t] for part in self._draws])
        self._step()


def _rows_of(leaves: Mapping[int, Tensor]) -> Leaves:
    return {n: leaf.unbind() for n, leaf in leaves.items()}


def _copy_rows(into: Leaves, out_of: Leaves, pairs: Sequence[tuple[int, int]]) -> None:
    """Copies in all leaves the second row of each pair onto the first."""
    copy_all(
        [rows[to] for rows in into.values() for to, _ in pairs],
        [out_of[n][of] for n in into for _, of in pairs],
    )


def copy_all(into: Sequence[Tensor], out_of: Sequence[Tensor]) -> None:
    """Those of one type at once: together with others each would be copied on its own."""
    for dtype in {tensor.dtype for tensor in into}:
        torch._foreach_copy_(
            [tensor for tensor in into if tensor.dtype == dtype],
            [tensor for tensor in out_of if tensor.dtype == dtype],
        )


def _captured(step: Callable[[], Any]) -> Callable[[], Any]:
    """``step`` as a CUDA graph; the trial runs before it leave their traces in the buffers.

    A capture that runs out of memory cannot be undone, so that the room it needs is asked for before.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    room = int(ROOM * (torch.cuda.max_memory_allocated() - held)) + SPARE
    torch.empty(room, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
