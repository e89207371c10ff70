"""Stages of a cohort as compiled programs: traced once, then replayed step by step on lanes of clients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from idiolect.core import Context, Program, Stage, State, Tree
from idiolect.core.trees import tree_leaves, tree_map, tree_structure
from idiolect.engines.fingerprint import fingerprint
from idiolect.engines.lanes import assign, count_lanes
from idiolect.engines.packing import BATCHED_LAYERS, Packing, advance
from idiolect.engines.replay import Replay, copy_all
from idiolect.engines.stage_plan import StagePlan
from idiolect.engines.tracing import Traced, trace
from idiolect.engines.workload import Workload

__all__ = ["BACKENDS", "Compiled"]

BACKENDS: dict[str, Callable[[torch.fx.GraphModule], Callable[..., Any]]] = {
    "inductor": lambda graph: torch.compile(graph, fullgraph=True, dynamic=False),
    "trace": lambda graph: graph,
}
COMPILED: dict[tuple[str, str], Callable[..., Any]] = {}  # by backend and text of the graph; kept over runs


class Moment(NamedTuple):
    """What changes from round to round and leaves the program as it is, as tensors."""

    round: Tensor
    learning_rate: Tensor
    lr_scale: Tensor


@dataclass
class Compiled:
    """The steps of one run.  A stage that cannot be traced is vmapped, saying so once.

    Args:
        backend: ``inductor`` compiles the traced step; ``trace`` runs its operations one by one.
    """

    work: Workload
    backend: str
    _traced: dict[Hashable, Traced | None] = field(default_factory=dict)
    _replays: dict[str, Replay] = field(default_factory=dict)
    _identities: dict[int, tuple[Program, Hashable]] = field(default_factory=dict)

    @property
    def packing(self) -> Packing:
        return BATCHED_LAYERS._replace(feed=self.plan, fold=self.fold)

    def forget(self) -> None:
        """Gives back the memory that replays hold."""
        self._replays.clear()

    def plan(self, work: Workload, program: Program, stage: Stage, clients: list[int]) -> StagePlan:
        plans, draws = zip(*(work.plan(program, stage, client) for client in clients), strict=True)
        steps = [len(plan.index) // stage.batches_per_step for plan in plans]
        everyone, n_rows = work.extent(program, stage)
        n_lanes = count_lanes(everyone, len(clients))
        return StagePlan(clients, plans, draws, steps, stage.batches_per_step, n_lanes, n_rows)

    def fold(self, program: Program, stage: Stage, context: Context, state: State, plan: StagePlan) -> State:
        """The state of every client after its steps."""
        jobs = assign(plan.steps, plan.n_lanes)
        if not jobs:
            return state
        arguments = self._arguments(context, state, plan)
        traced = self._trace(program, stage, arguments)
        if traced is None:
            feed = self.work.cohort_feed(program, stage, plan.clients)
            return BATCHED_LAYERS.fold(program, stage, context, state, feed)
        replay = self._replay(traced, arguments, plan)
        leaves, clients = _leaves_of(context, state)
        shared = [i for i in replay.buffers if i < len(leaves) and i not in clients]
        copy_all([replay.buffers[i] for i in shared], [leaves[i] for i in shared])
        copy_all(replay.constants, traced.constants)
        clock, last = program.clock, len(tree_leaves(arguments)) - len(Moment._fields)
        for i, value in enumerate((clock.round, clock.learning_rate, stage.lr_scale), start=last):
            if i in replay.buffers:
                replay.buffers[i].fill_(value)
        device = self.work.x.device
        after = replay.run(jobs, plan.tickets(jobs, device), plan.drawn(jobs, self.work.x), clients)
        first = len(tree_leaves(context))
        new = iter([after.get(i, leaves[i]) for i in range(first, len(leaves))])
        return tree_map(lambda _: next(new), state)

    def _arguments(self, context: Context, state: State, plan: StagePlan) -> tuple[Tree, ...]:
        """Tensors of the shapes that a step of all lanes takes, each an object of its own: a trace knows them by it."""
        number = context.facts.samples.new_zeros(())

        def lanes(leaf: Tensor) -> Tensor:
            return leaf.new_empty(plan.n_lanes, *leaf.shape[1:])

        server, uploads = tree_map(torch.empty_like, (context.server, context.uploads))
        private, facts, results, state = tree_map(lanes, (*context[1:4], state))
        rows = torch.zeros(3, plan.n_lanes, plan.n_rows, dtype=torch.int64, device=number.device)
        batches = tuple(self.work.gather(*rows, plan.blank_draws(number)) for _ in range(plan.n_batches))
        active = number.new_zeros(plan.n_lanes) > 0
        moment = Moment(*(number.clone() for _ in Moment._fields))
        return Context(server, private, facts, results, uploads), state, batches, active, moment

    def _trace(self, program: Program, stage: Stage, arguments: tuple[Tree, ...]) -> Traced | None:
        kinds = tuple((tuple(leaf.shape), leaf.dtype) for leaf in tree_leaves(arguments))
        part = (stage.owner, stage.objective, stage.measure, stage.trainable, stage.optimiser)
        key = (self._identity(program), fingerprint(part), repr(tree_structure(arguments)), kinds)
        if key not in self._traced:
            try:
                with torch.device(self.work.x.device):
                    self._traced[key] = trace(_step_of(program, stage), arguments, state_at=1)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                self._traced[key] = None
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                warnings.warn(
                    f"stage {stage.name} of {program.method.name} runs uncompiled: {reason}", stacklevel=2
                )
        return self._traced[key]

    def _identity(self, program: Program) -> Hashable:
        """The key of a program apart from its moment; computed once for the programs of one run."""
        known = self._identities.get(id(program.task))
        if known is None or known[0].method is not program.method or known[0].scene != program.scene:
            content = (program.method.parts, program.task, program.scene, program.differentiate)
            known = self._identities[id(program.task)] = (program, fingerprint(content))
        clock = program.clock
        return known[1], clock.rounds, clock.participation_rate, clock.cohort_size, clock.population

    def _replay(self, traced: Traced, arguments: tuple[Tree, ...], plan: StagePlan) -> Replay:
        if traced.text not in self._replays:
            key = (self.backend, traced.text)
            if key not in COMPILED:
                COMPILED[key] = BACKENDS[self.backend](traced.graph)
            leaves = tree_leaves(arguments)
            before = len(tree_leaves(arguments[:2]))
            batches_at = range(before, before + len(tree_leaves(arguments[2])))
            with torch.no_grad():
                self._replays[traced.text] = Replay(traced, COMPILED[key], leaves, batches_at, self.work, plan)
        return self._replays[traced.text]


def _step_of(program: Program, stage: Stage) -> Callable[..., State]:
    """One step of all lanes, at a moment given as tensors."""

    def step(context: Context, state: State, batches: Tree, active: Tensor, moment: Moment) -> State:
        clock = program.clock._replace(round=moment.round, learning_rate=moment.learning_rate)
        now = replace(program, clock=clock)
        one = advance(now, replace(stage, lr_scale=moment.lr_scale))
        return BATCHED_LAYERS.lift(one)(context, state, batches, active)

    return step


def _leaves_of(context: Context, state: State) -> tuple[list[Tensor], dict[int, Tensor]]:
    """All leaves in order, and by position those that have a row for every client."""
    common = [len(tree_leaves(context.server)), len(tree_leaves(context[:4])), len(tree_leaves(context))]
    leaves = tree_leaves((context, state))
    return leaves, {
        i: leaf for i, leaf in enumerate(leaves) if common[0] <= i < common[1] or i >= common[2]
    }
