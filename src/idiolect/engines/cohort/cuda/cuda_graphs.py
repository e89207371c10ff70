"""CUDA graphs: a compiled step, captured on memory that stays where it is and replayed on lanes of clients.

One graph holds one to eight steps of a lane group.  Lane groups run on streams of their own, and the one with the most
remaining work is launched first.  Before each step its batches are copied to where the step reads them: a lane group
stands at a row of the batch table, which names the examples that a step reads.  Table and position stay on the device,
so that several steps can follow each other without the host.  Elsewhere than on CUDA the same steps are called one by
one.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from subprocess import CalledProcessError
from typing import Any, NamedTuple

import torch
from torch import Tensor

from idiolect.core.trees import tree_leaves
from idiolect.engines.cohort.cuda.kernels import HAS_TRITON
from idiolect.engines.cohort.cuda.lane_assignment import Job, LaneMemory, copy_all
from idiolect.engines.cohort.cuda.lane_batch_plans import LaneGroup, StagePlan, StepShape
from idiolect.engines.cohort.cuda.traced_step import TracedStep
from idiolect.engines.device_data import Workload

__all__ = ["GRAPH_STEPS", "BatchCopier", "BatchTable", "Replay", "launch_order"]

GRAPH_STEPS = (8, 4, 2, 1)  # steps of a graph, which are launched at once
ROOM, SPARE = 1.25, 64 << 20  # a capture may take so many times a trial run's memory, and so many bytes more
TRIALS = GRAPH_STEPS[0] + 1 + sum(GRAPH_STEPS)  # steps without a plan: two trials, and each graph once

# Number of the device's queues: with fewer, lane groups wait for each other.  It is read when CUDA is first used.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

Actions = Mapping[tuple[int, int], Callable[[], None]]  # what is done before a step, by lane group and step


def launch_order(groups: Sequence[LaneGroup]) -> Iterator[tuple[LaneGroup, int, int]]:
    """Yields which lane group to launch next, from which step on, and how many steps.

    The lane group with the most remaining steps goes first.  A launch ends where a job begins.
    """
    ends = [sorted({group.n_steps, *(job.start for job in group.jobs)}) for group in groups]
    waiting = [(-group.n_steps, place, 0) for place, group in enumerate(groups)]
    heapq.heapify(waiting)
    while waiting:
        _, place, t = waiting[0]
        group = groups[place]
        left = next(end for end in ends[place] if end > t) - t
        count = next(count for count in GRAPH_STEPS if count <= left)
        yield group, t, count
        t += count
        if t < group.n_steps:
            heapq.heapreplace(waiting, (t - group.n_steps, place, t))
        else:
            heapq.heappop(waiting)


class BatchTable:
    """Memory on the device for what all steps of a stage read: a row for each step, and its draws.

    Args:
        least: the fewest steps that there is room for.
    """

    def __init__(self, plan: StagePlan, least: int) -> None:
        size = max(least, plan.room, len(plan.table))
        self.rows = plan.table.new_zeros(size, plan.shape.table_width)
        self.draws = {part: draws.new_zeros(size, *draws.shape[1:]) for part, draws in plan.draws.items()}

    def has_room(self, plan: StagePlan) -> bool:
        return len(plan.table) <= len(self.rows)

    def load(self, plan: StagePlan) -> None:
        """Copies the table and the draws of a plan."""
        n_steps = len(plan.table)
        copy_all(
            [self.rows[:n_steps], *(draws[:n_steps] for draws in self.draws.values())],
            [plan.table, *(plan.draws[part] for part in self.draws)],
        )


class BatchCopier:
    """Copies the batches of the steps of one lane group.

    Args:
        cursor: the row of the batch table that the lane group stands at [1].

    Attributes:
        leaves: the leaves of the batches of one step.
        active: which lanes have a client in that step.
    """

    def __init__(self, work: Workload, shape: StepShape, table: BatchTable, cursor: Tensor) -> None:
        self._work, self._shape, self._table, self.cursor = work, shape, table, cursor
        n_batches, n_lanes, n_rows = shape
        self._draws = {part: draws.new_zeros(draws.shape[1:]) for part, draws in table.draws.items()}
        blank = torch.zeros(3, n_lanes, n_rows, dtype=torch.int64, device=work.y.device)
        self._batches = []
        for _ in range(n_batches):
            index, mask, key = blank.clone().unbind()
            self._batches.append(work.gather(index, mask, key, self._draws))
        self.leaves = tree_leaves(self._batches)
        self.active = torch.zeros(n_lanes, dtype=torch.bool, device=work.y.device)
        self._by_kernel = work.y.is_cuda and HAS_TRITON and self._has_kernel()

    def copy(self, ahead: int) -> None:
        """Copies the batches of the step that is so many steps ahead of the cursor."""
        if self._draws:
            place = self.cursor + ahead
            drawn = [draws.index_select(0, place)[0] for draws in self._table.draws.values()]
            copy_all(list(self._draws.values()), drawn)
        (self._copy_by_kernel if self._by_kernel else self._copy_plainly)(ahead)

    def _has_kernel(self) -> bool:
        """Whether Triton has a C compiler that works; without one inductor's kernels fail too, with a warning."""
        try:
            self._copy_by_kernel(0)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, CalledProcessError):
            return False
        return True

    def _copy_by_kernel(self, ahead: int) -> None:
        from idiolect.engines.cohort.cuda.kernels.batch_copy import copy_batch  # noqa: PLC0415

        examples, rows = (self._work.x, self._work.y), self._table.rows
        for number, (x, y, mask, key, _) in enumerate(self._batches):
            copy_batch(examples, rows, self.cursor, ahead, number, (x, y, mask, key), self.active)

    def _copy_plainly(self, ahead: int) -> None:
        """Copies in PyTorch what the kernel copies; it defines what the kernel has to do."""
        n_batches, n_lanes, n_rows = self._shape
        row = self._table.rows.index_select(0, self.cursor + ahead)[0]
        batches = row[:-n_lanes].view(n_batches, 3, n_lanes, n_rows)
        for batch, (index, mask, key) in zip(self._batches, batches, strict=True):
            found = self._work.gather(index, mask, key, batch.draws)
            copy_all(list(batch[:4]), list(found[:4]))
        self.active.copy_(row[-n_lanes:] > 0)


class _LaneGroupSteps(NamedTuple):
    """What runs the steps of one lane group."""

    copier: BatchCopier  # whose memory the graphs use
    run: dict[int, Callable[[], Any]]  # by number of steps


class Replay:
    """A compiled step on the memory of all lanes, run again and again.

    Args:
        run: the compiled step.

    Attributes:
        buffers: what all lane groups read besides batches and clients' leaves, by number of the input; the caller fills
            them.
        constants: what all lane groups read after these inputs; the caller fills them too.
    """

    def __init__(self, run: Callable[..., Any], step: TracedStep, work: Workload, plan: StagePlan) -> None:
        self._run, self._roles, self._work = run, step.roles, work
        device, kinds = work.y.device, dict(enumerate(step.kinds))
        self.buffers = {
            n: torch.zeros(kinds[n].shape, dtype=kinds[n].dtype, device=device)
            for n, role in enumerate(step.roles)
            if role.kind in ("shared", "round")
        }
        self.constants = [constant.clone() for constant in step.graph.constants]
        clients = [n for n, role in enumerate(step.roles) if role.kind == "client"]
        self._leaves = {n: number for number, n in enumerate(clients)}
        self._kinds = [(kinds[n].shape[1:], kinds[n].dtype) for n in clients]
        self._changed = step.graph.changed
        self._lanes = LaneMemory.zeros(self._kinds, plan.layout.n_groups, plan.layout.width, device)
        self._make_groups(plan)

    @cached_property
    def _in_client_order(self) -> LaneMemory:
        """Clients in their own order, on their way to the lanes."""
        return self._lanes.clone()

    def _make_groups(self, plan: StagePlan) -> None:
        self._groups: list[_LaneGroupSteps] = []  # frees the memory of the old ones first
        self._table, self._cursors = BatchTable(plan, TRIALS), torch.zeros_like(plan.firsts)
        self._groups = [self._group_steps(plan, number) for number in range(plan.layout.n_groups)]

    def _group_steps(self, plan: StagePlan, number: int) -> _LaneGroupSteps:
        cursor = self._cursors[number : number + 1]
        copier = BatchCopier(self._work, plan.shape, self._table, cursor)
        given = {"batch": copier.leaves, "active": [copier.active]}
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
                    copier.copy(ahead)
                    self._run(*inputs, *self.constants)
                cursor.add_(count)

        if not self._work.y.is_cuda:
            steps(1)  # a step that cannot run fails here
            return _LaneGroupSteps(copier, {count: partial(steps, count) for count in GRAPH_STEPS})
        return _LaneGroupSteps(copier, _capture_graphs(steps, _stream_of(number, self._work.y.device)))

    def run(self, plan: StagePlan, clients: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Runs all jobs; returns every client's leaves that the step changes, by number of the input.

        Args:
            clients: every client's leaves before its job, by number of the input.
        """
        if not self._table.has_room(plan):
            self._make_groups(plan)
        self._table.load(plan)
        self._cursors.copy_(plan.firsts)
        own = {self._leaves[n]: leaf for n, leaf in clients.items()}
        if not plan.has_lane_for_everybody:
            after = self._run_in_turn(plan, own)
            return {n: after.leaves[self._leaves[n]].contiguous() for n in self._changed}
        if plan.lane_of is None:
            self._lanes.fill(own)
        else:
            self._in_client_order.fill(own)
            self._lanes.copy_rows(self._in_client_order, plan.lane_of)
        self._run_groups(plan, {})
        return {n: self._lanes.copied(self._leaves[n], plan.lane_of) for n in self._changed}

    def _run_in_turn(self, plan: StagePlan, own: Mapping[int, Tensor]) -> LaneMemory:
        """Runs all jobs where clients take turns: a lane that is done takes the next client."""
        before = LaneMemory.zeros(self._kinds, len(plan.clients), 1, self._work.y.device)
        before.fill(own)
        after = before.clone()
        memories = (self._lanes, before, after)
        lanes, waiting, done = (memory.lanes(by_leaf=not plan.layout.apart) for memory in memories)
        on_lane: dict[int, Job] = {}

        def switch_clients(begun: list[Job]) -> None:
            ended = [on_lane[job.lane] for job in begun if job.lane in on_lane]
            _copy_lanes(done, lanes, [(job.client, job.lane) for job in ended])
            _copy_lanes(lanes, waiting, [(job.lane, job.client) for job in begun])
            on_lane.update({job.lane: job for job in begun})

        starting: dict[tuple[int, int], list[Job]] = {}
        for group in plan.lane_groups:
            for job in group.jobs:
                starting.setdefault((group.number, job.start), []).append(job)
        self._run_groups(plan, {place: partial(switch_clients, begun) for place, begun in starting.items()})
        _copy_lanes(done, lanes, [(job.client, job.lane) for job in on_lane.values()])
        return after

    def _run_groups(self, plan: StagePlan, actions: Actions) -> None:
        """Runs all lane groups side by side."""
        with _streams_of(plan.lane_groups, self._work.y.device) as go_to:
            for group, t, count in launch_order(plan.lane_groups):
                go_to(group.number)
                if act := actions.get((group.number, t)):
                    act()
                self._groups[group.number].run[count]()


def _copy_lanes(
    into: Sequence[Sequence[Tensor]], out_of: Sequence[Sequence[Tensor]], pairs: Sequence[tuple[int, int]]
) -> None:
    """Copies the second lane of each pair onto the first."""
    copy_all(
        [part[to] for part in into for to, _ in pairs],
        [part[of] for part in out_of for _, of in pairs],
    )


@contextmanager
def _streams_of(groups: Sequence[LaneGroup], device: torch.device) -> Iterator[Callable[[int], None]]:
    """Gives a function that switches to the stream of a lane group.

    All streams begin after what was launched before, and what follows begins after them.  A single lane group stays on
    the current stream.
    """
    if device.type != "cuda" or len(groups) == 1:
        yield lambda number: None
        return
    streams = {group.number: _stream_of(group.number, device) for group in groups}
    here = torch.cuda.current_stream(device)
    before = here.record_event()
    for stream in streams.values():
        stream.wait_event(before)
    try:
        yield lambda number: torch.cuda.set_stream(streams[number])
    finally:
        torch.cuda.set_stream(here)
        for stream in streams.values():
            here.wait_stream(stream)


@cache
def _stream_of(number: int, device: torch.device) -> torch.cuda.Stream:
    """Returns the stream of a lane group; the first have the longest clients and the highest priority.

    A graph's kernels keep the priority of the stream that they were captured on.
    """
    stream: Any = torch.cuda.Stream  # PyTorch does not type how it is made
    _, highest = stream.priority_range()
    made: torch.cuda.Stream = stream(device, priority=min(0, highest + number))
    return made


def _capture_graphs(steps: Callable[[int], Any], stream: torch.cuda.Stream) -> dict[int, Callable[[], Any]]:
    """Captures ``steps`` as one CUDA graph for each number of steps; trial runs leave their results in memory.

    A graph's first run is slow, so that each runs once here.  A capture that runs out of memory cannot be undone, so
    that the memory it needs is asked for before.  It is captured on a stream of its own, because only there is the
    memory that matrix products use to work in.
    """
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(stream):
            steps(GRAPH_STEPS[0])  # so that no kernel is loaded while a graph is captured
            held = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            steps(1)
    finally:  # what it has begun uses memory of the current stream
        torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    room = int(ROOM * (torch.cuda.max_memory_allocated() - held)) + SPARE
    torch.empty(room, dtype=torch.uint8, device="cuda")
    graphs, pool = {}, torch.cuda.graph_pool_handle()
    for count in GRAPH_STEPS:
        graphs[count] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[count], stream=stream, pool=pool):
            steps(count)
        graphs[count].replay()
    return {count: graph.replay for count, graph in graphs.items()}
