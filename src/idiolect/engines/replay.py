"""A traced step on buffers that stay where they are, run again and again: on CUDA as a graph of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from idiolect.core.trees import tree_leaves
from idiolect.engines.lanes import Job
from idiolect.engines.stage_plan import StagePlan
from idiolect.engines.tracing import Traced
from idiolect.engines.workload import Workload

__all__ = ["Replay", "copy_all"]


class Replay:
    """One step of all lanes.

    Args:
        run: the compiled step.
        leaves: of the arguments the step was traced with; those at ``batches_at`` are the batches', and who is
            active follows them.

    Attributes:
        buffers: the other leaves that the step reads, by position; whoever runs it fills them.
        constants: what else it reads.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        traced: Traced,
        leaves: Sequence[Tensor],
        batches_at: range,
        work: Workload,
        plan: StagePlan,
    ) -> None:
        active, shape = batches_at.stop, plan.shape
        given = [i for i in traced.used if i not in batches_at and i != active]
        self.buffers = {i: torch.zeros_like(leaves[i]) for i in given}
        self.constants = [constant.clone() for constant in traced.constants]
        self._changed = traced.changed
        self._ticket = torch.zeros_like(plan.tickets[0])
        self._draws = plan.blank_draws()
        rows = self._ticket[: -shape.n_lanes].view(shape.n_batches, 3, shape.n_lanes, shape.n_rows)

        def step() -> None:
            batches = [work.gather(*rows[u], self._draws) for u in range(shape.n_batches)]
            now = dict(zip(batches_at, tree_leaves(batches), strict=True))
            now |= {**self.buffers, active: self._ticket[-shape.n_lanes :] > 0}
            with torch.no_grad():
                run(*(now[i] for i in traced.used), *self.constants)

        if work.y.is_cuda:
            self._step = _captured(step)
        else:
            step()  # once, so that what cannot run is known now
            self._step = step

    def run(self, plan: StagePlan, clients: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Every client's leaves after its job, by position.

        Args:
            clients: every client's leaves before, by position.
        """
        read = {i: buffer for i, buffer in self.buffers.items() if i in clients}
        changed = {i: self.buffers[i] for i in self._changed}
        after: dict[int, Tensor] = {}  # made when the device has work to do meanwhile
        on_lane: dict[int, Job] = {}
        starting: dict[int, list[Job]] = {}
        for job in plan.jobs:
            starting.setdefault(job.start, []).append(job)
        for t, ticket in enumerate(plan.tickets):
            if begun := starting.get(t):
                if done := [on_lane[job.lane] for job in begun if job.lane in on_lane]:
                    after = after or {i: clients[i].clone() for i in changed}
                    _copy_rows(after, changed, [(job.client, job.lane) for job in done])
                _copy_rows(read, clients, [(job.lane, job.client) for job in begun])
                on_lane |= {job.lane: job for job in begun}
            self._ticket.copy_(ticket)
            copy_all(list(self._draws.values()), [plan.draws[part][t] for part in self._draws])
            self._step()
        after = after or {i: clients[i].clone() for i in changed}
        _copy_rows(after, changed, [(job.client, job.lane) for job in on_lane.values()])
        return after


def _copy_rows(
    into: Mapping[int, Tensor], out_of: Mapping[int, Tensor], rows: Sequence[tuple[int, int]]
) -> None:
    """Copies in all leaves the second row of each pair onto the first; all of them at once where they are in order."""
    if all(pair == (n, n) for n, pair in enumerate(rows)):
        copy_all([leaf[: len(rows)] for leaf in into.values()], [out_of[i][: len(rows)] for i in into])
    else:
        copy_all(
            [leaf[row] for leaf in into.values() for row, _ in rows],
            [out_of[i][row] for i in into for _, row in rows],
        )


def copy_all(into: Sequence[Tensor], out_of: Sequence[Tensor]) -> None:
    if into:
        torch._foreach_copy_(list(into), list(out_of))


def _captured(step: Callable[[], Any]) -> Callable[[], Any]:
    """``step`` as a CUDA graph; the trial runs before it leave their traces in the buffers."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
