"""Steps of a cohort on a CPU as lists of tensor operations, traced once: under vmap each costs milliseconds of Python.

Tracing pays in a run of many rounds of a network without convolutions.  In others, and where a step cannot be traced,
it is vmapped.  A step is traced for few shapes: where clients are of about equal size, a group who make as many steps
as each other is one block; others are blocks of few sizes with batches of one width.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, fx

from idiolect.core import Context, Program, Stage, State, Tree
from idiolect.core.trees import flatten, unflatten
from idiolect.engines.cohort.batches import lay_out
from idiolect.engines.cohort.client_blocks import Block, few_sizes, one_size, run_blocks
from idiolect.engines.cohort.cpu.prefetch import StageFeed
from idiolect.engines.cohort.cpu.step_trace import depends_on, traced_step
from idiolect.engines.cohort.cuda.traced_step import Moment
from idiolect.engines.cohort.fingerprint import ProgramKeys, fingerprint
from idiolect.engines.cohort.traced_hooks import TracedHooks
from idiolect.engines.packing import BATCHED, Feed, Packing
from idiolect.engines.workload import Workload

__all__ = ["MANY", "FlatSteps", "tracing_pays"]

MANY = 20  # rounds of a run from which tracing pays


@dataclass
class FlatSteps:
    """Args:
    many: rounds of a run from which its steps are traced.
    """

    many: float = MANY
    _keys: ProgramKeys = field(default_factory=ProgramKeys)
    _steps: dict[Hashable, dict[Hashable, fx.GraphModule | None]] = field(default_factory=dict)
    _reads_keys: dict[Hashable, bool] = field(default_factory=dict)
    _ahead: dict[Hashable, StageFeed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._hooks = TracedHooks(self._keys)

    @property
    def packing(self) -> Packing:
        return BATCHED._replace(fold=self.fold, call=self.call, feed=self.feed)

    def look_ahead(self, work: Workload, program: Program, clients: list[int]) -> None:
        """Prepares the first stage of a coming round; what was prepared and not asked for is forgotten."""
        stage = program.method.plan(program.scene, program.clock).before[0]
        program = replace(program, differentiate=BATCHED.differentiate)
        fed = self._fed(work, program, stage, clients).with_some_ready()
        self._ahead = {self._moment(program, stage, clients): fed}

    def feed(self, work: Workload, program: Program, stage: Stage, clients: list[int]) -> StageFeed:
        prepared = self._ahead.pop(self._moment(program, stage, clients), None)
        return prepared or self._fed(work, program, stage, clients)

    def _moment(self, program: Program, stage: Stage, clients: list[int]) -> Hashable:
        return (
            self._keys(program),
            program.clock,
            stage.name,
            stage.owner,
            stage.split,
            stage.stream,
            *clients,
        )

    def _fed(self, work: Workload, program: Program, stage: Stage, clients: list[int]) -> StageFeed:
        """With the keys of examples, unless steps were traced that read none."""
        if not self._pays(program):
            return StageFeed(None, lay_out(work, program, stage, clients), one_size, None)
        parts = (stage.owner, stage.objective, stage.measure, stage.trainable, stage.optimiser)
        what = (self._keys(program), fingerprint(parts))
        batches = lay_out(work, program, stage, clients, self._reads_keys.get(what, True))
        if work.is_even and batches.steps[0] == batches.steps[-1]:
            return StageFeed(what, batches, one_size, None)
        return StageFeed(what, batches, few_sizes, work.width(program, stage))

    def call(self, program: Program, name: str, stage: Stage | None, context: Context, *trees: Tree) -> Any:
        hooks = self._hooks if self._pays(program) else BATCHED
        return hooks.call(program, name, stage, context, *trees)

    def fold(self, program: Program, stage: Stage, context: Context, state: State, feed: StageFeed) -> State:
        now = (program.clock.round, program.clock.learning_rate, stage.lr_scale)
        moment = Moment(*(torch.full_like(context.facts.samples[0], number) for number in now))

        def run(block: Block, context: Context, state: State) -> State:
            if feed.what is None:
                return BATCHED.fold(program, stage, context, state, feed.steps(block))
            return self._run_traced(program, stage, context, state, moment, feed.what, feed.steps(block))

        return run_blocks(feed.blocks(), feed.batches.order, context, state, run)

    def _run_traced(
        self,
        program: Program,
        stage: Stage,
        context: Context,
        state: State,
        moment: Moment,
        what: Hashable,
        feed: Feed,
    ) -> State:
        held, form = flatten(state)
        fixed, around = flatten((context, moment))
        steps = self._steps.setdefault((what, form, around, _kinds((*held, *fixed))), {})
        for batches, _ in feed:
            read, beside = flatten(batches)
            leaves = [*held, *fixed, *read]
            key = (beside, _kinds(read), tuple(leaf.stride() for leaf in held))
            if key not in steps:
                takes = (tuple, (), (form, *around[2], beside))
                steps[key] = traced_step(program, stage, leaves, takes)
                reads = depends_on(steps[key], leaves, [id(batch.key) for batch in batches])
                known = self._reads_keys.setdefault(what, reads)
                if reads and not known:
                    raise RuntimeError("a step reads keys of examples that it did not read before")
            step = steps[key]
            if step is None:
                return BATCHED.fold(
                    program, stage, context, unflatten(held, form), chain([(batches, None)], feed)
                )
            with torch.no_grad():
                held = step.forward(*leaves)  # the module's own call would look for hooks
        return unflatten(held, form)

    def _pays(self, program: Program) -> bool:
        return tracing_pays(program, self.many)


def tracing_pays(program: Program, many: float = MANY) -> bool:
    return program.clock.rounds >= many and not program.task.structure.convolutional


def _kinds(leaves: Sequence[Tensor]) -> Hashable:
    return tuple((leaf.shape, leaf.stride(), leaf.dtype) for leaf in leaves)
