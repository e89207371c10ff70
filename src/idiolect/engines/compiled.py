"""Stages of a cohort as compiled programs: traced once, then replayed step by step on lanes of clients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from idiolect.core import Context, Program, Stage, State, Tree
from idiolect.core.trees import flatten, tree_leaves, tree_map, unflatten
from idiolect.engines.fingerprint import ProgramKeys, fingerprint
from idiolect.engines.lanes import assign, count_lanes
from idiolect.engines.packing import BATCHED_LAYERS, Packing, advance
from idiolect.engines.replay import Replay, copy_all
from idiolect.engines.stage_plan import Shape, StagePlan, drawn_on_lanes, tickets_on_lanes
from idiolect.engines.traced_hooks import TracedHooks
from idiolect.engines.tracing import Traced, trace
from idiolect.engines.workload import Workload
from idiolect.layers import warm_up

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


class Step(NamedTuple):
    """A stage's step and where the leaves of its arguments are.

    Args:
        clients: positions of the leaves that have a row for every client; the other leaves are shared.
        state: position of the first leaf of the state; those of the batches follow at ``batches``.
        reads_keys: whether the step depends on the keys of examples.
    """

    takes: Hashable  # (context, state)
    gives: Hashable  # state
    traced: Traced | None
    leaves: list[Tensor]
    clients: frozenset[int]
    state: int
    batches: range
    reads_keys: bool


@dataclass
class Compiled:
    """The steps of one run.  A stage that cannot be traced is vmapped, saying so once.

    Args:
        backend: ``inductor`` compiles the traced step; ``trace`` runs its operations one by one.
    """

    work: Workload
    backend: str
    _keys: ProgramKeys = field(default_factory=ProgramKeys)
    _steps: dict[Hashable, Step] = field(default_factory=dict)
    _replays: dict[str, Replay] = field(default_factory=dict)
    _extents: dict[Hashable, tuple[int, int]] = field(default_factory=dict)
    _reads_keys: dict[str, bool] = field(default_factory=dict)
    _ahead: dict[Hashable, StagePlan] = field(default_factory=dict)

    @property
    def packing(self) -> Packing:
        return BATCHED_LAYERS._replace(feed=self.plan, fold=self.fold, call=TracedHooks(self._keys).call)

    def forget(self) -> None:
        """Gives back the memory that replays hold."""
        self._replays.clear()

    def look_ahead(self, program: Program, clients: list[int]) -> None:
        """Plans a coming round while the device is busy with this one."""
        self._ahead.clear()
        stages = program.method.plan(program.scene, program.clock)
        for stage in (*stages.before, *stages.after):
            key = (program.clock.round, stage.name, tuple(clients))
            self._ahead[key] = self._plan(program, stage, clients, self._reads_keys.get(stage.name, True))

    def plan(self, work: Workload, program: Program, stage: Stage, clients: list[int]) -> StagePlan:
        ahead = self._ahead.pop((program.clock.round, stage.name, tuple(clients)), None)
        # whether keys are read is taken from the round before; ``fold`` makes sure
        return ahead or self._plan(program, stage, clients, self._reads_keys.get(stage.name, True))

    def _plan(self, program: Program, stage: Stage, clients: list[int], with_keys: bool) -> StagePlan:
        planned = [self.work.plan(program, stage, client, with_keys) for client in clients]
        plans, draws = zip(*planned, strict=True)
        n_lanes, n_rows = self._extent(program, stage, len(clients))
        shape = Shape(stage.batches_per_step, n_lanes, n_rows)
        jobs = assign([len(plan.index) // shape.n_batches for plan in plans], n_lanes)
        tickets = tickets_on_lanes(plans, jobs, shape, self.work.like)
        drawn = drawn_on_lanes(draws, jobs, shape, self.work.like)
        return StagePlan(clients, jobs, shape, tickets, drawn, with_keys)

    def fold(self, program: Program, stage: Stage, context: Context, state: State, plan: StagePlan) -> State:
        """The state of every client after its steps."""
        if not plan.jobs:
            return state
        leaves, takes = flatten((context, state))
        step = self._step(program, stage, context, state, plan, leaves, takes)
        if step.traced is None:
            feed = self.work.cohort_feed(program, stage, plan.clients)
            return BATCHED_LAYERS.fold(program, stage, context, state, feed)
        self._reads_keys[stage.name] = step.reads_keys
        if step.reads_keys and not plan.with_keys:
            plan = self._plan(program, stage, plan.clients, True)
        replay = self._replay(step, step.traced, plan)
        shared = [i for i in replay.buffers if i < len(leaves) and i not in step.clients]
        copy_all([replay.buffers[i] for i in shared], [leaves[i] for i in shared])
        copy_all(replay.constants, step.traced.constants)
        clock = program.clock
        moment = (clock.round, clock.learning_rate, stage.lr_scale)
        for i, value in enumerate(moment, start=step.batches.stop + 1):
            if i in replay.buffers:
                replay.buffers[i].fill_(value)
        after = replay.run(plan, {i: leaves[i] for i in step.clients})
        return unflatten([after.get(i, leaves[i]) for i in range(step.state, len(leaves))], step.gives)

    def _extent(self, program: Program, stage: Stage, n_clients: int) -> tuple[int, int]:
        """Lanes, and rows of a batch; the same in every round."""
        pace = (stage.split, stage.epochs, stage.share, stage.steps, stage.min_steps, stage.has_minimum)
        key = (*pace, stage.rounding, stage.batches_per_step, stage.measure is None, program.scene, n_clients)
        if key not in self._extents:
            everyone, n_rows = self.work.extent(program, stage)
            self._extents[key] = count_lanes(everyone, n_clients), n_rows
        return self._extents[key]

    def _step(
        self,
        program: Program,
        stage: Stage,
        context: Context,
        state: State,
        plan: StagePlan,
        leaves: list[Tensor],
        takes: Hashable,
    ) -> Step:
        kinds = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        part = (stage.owner, stage.objective, stage.measure, stage.trainable, stage.optimiser)
        key = (self._keys(program), fingerprint(part), plan.shape, kinds)
        known = self._steps.get(key)
        if known is None or known.takes != takes:
            known = self._steps[key] = self._new_step(program, stage, context, state, plan, takes)
        return known

    def _new_step(
        self, program: Program, stage: Stage, context: Context, state: State, plan: StagePlan, takes: Hashable
    ) -> Step:
        arguments = self._arguments(context, state, plan)
        ends = [len(tree_leaves(part)) for part in (context.server, context[:4], context, (context, state))]
        clients = frozenset([*range(ends[0], ends[1]), *range(ends[2], ends[3])])
        batches = range(ends[3], ends[3] + len(tree_leaves(arguments[2])))
        try:
            with torch.device(self.work.y.device):
                traced = trace(_step_of(program, stage), arguments, state_at=1)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            traced = None
            _say(f"stage {stage.name} of {program.method.name} runs uncompiled", error)
        leaves = tree_leaves(arguments)
        keys = {id(batch.key) for batch in arguments[2]}
        reads = traced is None or any(id(leaves[i]) in keys for i in traced.used)
        return Step(takes, flatten(state)[1], traced, leaves, clients, ends[2], batches, reads)

    def _arguments(self, context: Context, state: State, plan: StagePlan) -> tuple[Tree, ...]:
        """Tensors of the shapes that a step of all lanes takes, each an object of its own: a trace knows them by it."""
        number = context.facts.samples.new_zeros(())
        n_batches, n_lanes, n_rows = plan.shape

        def lanes(leaf: Tensor) -> Tensor:
            return leaf.new_empty(n_lanes, *leaf.shape[1:])

        server, uploads = tree_map(torch.empty_like, (context.server, context.uploads))
        private, facts, results, state = tree_map(lanes, (*context[1:4], state))
        rows = torch.zeros(3, n_lanes, n_rows, dtype=torch.int64, device=number.device)
        batches = tuple(self.work.gather(*rows, plan.blank_draws()) for _ in range(n_batches))
        active = number.new_zeros(n_lanes) > 0
        moment = Moment(*(number.clone() for _ in Moment._fields))
        return Context(server, private, facts, results, uploads), state, batches, active, moment

    def _replay(self, step: Step, traced: Traced, plan: StagePlan) -> Replay:
        if traced.text not in self._replays:
            key = (self.backend, traced.text)
            if key not in COMPILED:
                warm_up(traced.graph)
                COMPILED[key] = BACKENDS[self.backend](traced.graph)
            place = (traced, step.leaves, step.batches, self.work, plan)
            try:
                self._replays[traced.text] = Replay(COMPILED[key], *place)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                _say(f"a step of {key[0]} runs without it", error)
                COMPILED[key] = BACKENDS["trace"](traced.graph)
                self._replays[traced.text] = Replay(COMPILED[key], *place)
        return self._replays[traced.text]


def _say(sentence: str, error: Exception) -> None:
    """Once, what is slower than it could be, and why."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    warnings.warn(f"{sentence}: {reason}", stacklevel=2)


def _step_of(program: Program, stage: Stage) -> Callable[..., State]:
    """One step of all lanes, at a moment given as tensors."""

    def step(context: Context, state: State, batches: Tree, active: Tensor, moment: Moment) -> State:
        clock = program.clock._replace(round=moment.round, learning_rate=moment.learning_rate)
        now = replace(program, clock=clock)
        one = advance(now, replace(stage, lr_scale=moment.lr_scale))
        return BATCHED_LAYERS.lift(one)(context, state, batches, active)

    return step
