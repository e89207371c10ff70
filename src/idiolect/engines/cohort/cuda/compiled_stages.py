"""Stages of a cohort as compiled programs: traced once, then replayed step by step on lanes of clients."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch

from idiolect.core import Context, Program, Stage, State
from idiolect.core.trees import flatten, unflatten
from idiolect.engines.cohort.batches import padded_feed
from idiolect.engines.cohort.cuda.cuda_graphs import Replay
from idiolect.engines.cohort.cuda.kernels.warm_up import warm_up
from idiolect.engines.cohort.cuda.lane_memory import copy_all
from idiolect.engines.cohort.cuda.planning import Planner
from idiolect.engines.cohort.cuda.stage_plan import StagePlan
from idiolect.engines.cohort.cuda.traced_step import Step, new_step
from idiolect.engines.cohort.fallback import compiling_quietly, warn_slower
from idiolect.engines.cohort.fingerprint import ProgramKeys, fingerprint
from idiolect.engines.cohort.traced_hooks import TracedHooks
from idiolect.engines.packing import BATCHED_LAYERS, Packing
from idiolect.engines.workload import Workload

__all__ = ["BACKENDS", "Compiled"]

# A kernel for each concatenation: inductor's one for 25 slices computes other numbers (torch 2.11, Triton 3.6), and
# test_compiled_cohort_equals_loop_on_a_gpu[map] fails.
INDUCTOR = {"force_pointwise_cat": True}
# Where lanes are apart, steps are short: fewer kernels, and partial sums added up number by number.
FEWER_KERNELS = {"combo_kernels": True, "unroll_reductions_threshold": 33}
# From a step and whether its lanes are apart.
BACKENDS: dict[str, Callable[[torch.fx.GraphModule, bool], Callable[..., Any]]] = {
    "inductor": lambda graph, apart: torch.compile(
        graph, fullgraph=True, dynamic=False, options=INDUCTOR | (FEWER_KERNELS if apart else {})
    ),
    "trace": lambda graph, apart: graph,
}
# By backend, text of the graph and whether lanes are apart; kept over runs.
COMPILED: dict[Hashable, Callable[..., Any]] = {}


@dataclass
class Compiled:
    """The steps of one run.  A stage that cannot be traced is vmapped, saying so once.

    Args:
        backend: ``inductor`` compiles the traced step; ``trace`` runs its operations one by one.
    """

    work: Workload
    backend: str
    _keys: ProgramKeys = field(default_factory=ProgramKeys)
    _steps: dict[Hashable, Step | None] = field(default_factory=dict)
    _replays: dict[Hashable, Replay] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._planner = Planner(self.work)

    @property
    def packing(self) -> Packing:
        hooks = TracedHooks(self._keys)
        return BATCHED_LAYERS._replace(feed=self._planner.plan, fold=self.fold, call=hooks.call)

    def forget(self) -> None:
        """Gives back the memory that replays and plans hold, and Python's collector all that it left alone."""
        self._replays.clear()
        self._planner.forget()
        gc.unfreeze()

    def look_ahead(self, program: Program, clients: list[int], stop: Callable[[], bool]) -> None:
        """Plans a coming round while the device is busy with this one; without memory for it, that round does."""
        try:
            self._planner.look_ahead(program, clients, stop)
        except torch.OutOfMemoryError:
            self._planner.forget()

    def fold(self, program: Program, stage: Stage, context: Context, state: State, plan: StagePlan) -> State:
        """The state of every client after its steps."""
        if not plan.programs:
            return state
        leaves, form = flatten((context, state))
        kinds = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        step = self._step(program, stage, context, state, plan, (kinds, form))
        if step is None:
            feed = padded_feed(self.work, program, stage, plan.clients)
            return BATCHED_LAYERS.fold(program, stage, context, state, feed)
        self._planner.reads_keys[stage.name] = step.reads_keys
        if step.reads_keys and not plan.with_keys:  # it was otherwise in the round before
            plan = self._planner.make(program, stage, plan.clients)
        replay = self._replay(step, plan)
        clock = program.clock
        moment = (clock.round, clock.learning_rate, stage.lr_scale)
        clients, shared = {}, {}
        for n, (kind, place) in enumerate(step.roles):
            if kind == "client":
                clients[n] = leaves[place]
            elif kind == "shared":
                shared[n] = leaves[place]
            elif kind == "moment":
                replay.buffers[n].fill_(moment[place])
        copy_all([replay.buffers[n] for n in shared], list(shared.values()))
        copy_all(replay.constants, step.traced.constants)
        for n, leaf in replay.run(plan, clients).items():
            leaves[step.roles[n].place] = leaf
        return unflatten(leaves[step.state :], step.gives)

    def _step(
        self,
        program: Program,
        stage: Stage,
        context: Context,
        state: State,
        plan: StagePlan,
        form: Hashable,
    ) -> Step | None:
        """Args:
        form: of context and state, with shapes and types of their leaves.
        """
        part = (stage.owner, stage.objective, stage.measure, stage.trainable, stage.optimiser)
        key = (self._keys(program), fingerprint(part), plan.shape, form)
        if key not in self._steps:
            try:
                self._steps[key] = new_step(program, stage, context, state, plan, self.work)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                warn_slower(f"stage {stage.name} of {program.method.name} runs uncompiled", error)
                self._steps[key] = None
        return self._steps[key]

    def _replay(self, step: Step, plan: StagePlan) -> Replay:
        """What runs the step; steps of one text share it, whatever numbers they hold."""
        text = step.traced.text
        same = (text, tuple(role if role.kind == "batch" else role.kind for role in step.roles), plan.layout)
        if same not in self._replays:
            key = (self.backend, text, plan.layout.apart)
            if key not in COMPILED:
                warm_up(step.traced.graph)
                COMPILED[key] = BACKENDS[self.backend](step.traced.graph, plan.layout.apart)
            try:
                with compiling_quietly():
                    replay = Replay(COMPILED[key], step, self.work, plan)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                warn_slower(f"a step runs without {self.backend}", error)
                COMPILED[key] = step.traced.graph
                replay = Replay(COMPILED[key], step, self.work, plan)
            self._replays[same] = replay
            _rest()
        return self._replays[same]


def _rest() -> None:
    """Python's collector leaves alone what compiling has made: looking it through takes as long as ten rounds."""
    gc.collect()
    gc.freeze()
