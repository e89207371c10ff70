"""Steps of a cohort on a CPU as lists of tensor operations, traced once: under vmap each costs milliseconds of Python.

Tracing pays in a run of many rounds of a network without convolutions.  In others, and where a step cannot be traced,
it is vmapped.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor, fx

from idiolect.core import Context, Program, Stage, State, Tree
from idiolect.core.trees import flatten, unflatten
from idiolect.engines.fewer_operations import simplify
from idiolect.engines.fingerprint import ProgramKeys, fingerprint
from idiolect.engines.flat_graph import graph_of
from idiolect.engines.in_place import own_memory, write_over
from idiolect.engines.narrow_softmax import turn_narrow_softmax
from idiolect.engines.packing import BATCHED, Feed, Packing
from idiolect.engines.steps import Moment, step_at
from idiolect.engines.traced_hooks import TracedHooks
from idiolect.engines.workload import Workload

__all__ = ["FlatSteps"]

MANY = 20  # rounds of a run from which tracing pays

Step = Callable[
    ..., list[Tensor]
]  # leaves of (state, context, moment, batches, active) -> leaves of the state


@dataclass
class FlatSteps:
    """Args:
    many: rounds of a run from which its steps are traced.
    """

    many: int = MANY
    _reads_keys: dict[str, bool] = field(
        default_factory=dict
    )  # by stage, whether a step asks for examples' keys
    _keys: ProgramKeys = field(default_factory=ProgramKeys)
    _steps: dict[Hashable, dict[Hashable, Step | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._hooks = TracedHooks(self._keys)

    @property
    def packing(self) -> Packing:
        return BATCHED._replace(fold=self.fold, call=self.call, feed=self.feed)

    def feed(self, work: Workload, program: Program, stage: Stage, clients: list[int]) -> Feed:
        return work.cohort_feed(program, stage, clients, with_keys=self._reads_keys.get(stage.name, True))

    def call(self, program: Program, name: str, stage: Stage | None, context: Context, *trees: Tree) -> Any:
        hooks = self._hooks if self._pays(program) else BATCHED
        return hooks.call(program, name, stage, context, *trees)

    def fold(self, program: Program, stage: Stage, context: Context, state: State, feed: Feed) -> State:
        if not self._pays(program):
            return BATCHED.fold(program, stage, context, state, feed)
        now = (program.clock.round, program.clock.learning_rate, stage.lr_scale)
        moment = Moment(*(torch.full_like(context.facts.samples[0], number) for number in now))
        held, form = _owned(state)
        fixed, around = flatten((context, moment))
        parts = (stage.owner, stage.objective, stage.measure, stage.trainable, stage.optimiser)
        same = (self._keys(program), fingerprint(parts), form, around, _kinds((*held, *fixed)))
        steps = self._steps.setdefault(same, {})
        for batches, active in feed:
            given = (batches, () if active is None else (active,))
            read, beside = flatten(given)
            leaves = [*held, *fixed, *read]
            key = (beside, _kinds(read), tuple(leaf.stride() for leaf in held))
            if key not in steps:
                takes = (tuple, (), (form, *around[2], *beside[2]))
                steps[key] = _traced(program, stage, leaves, takes)
                self._note_keys(stage, steps[key], [id(batch.key) for batch in batches], leaves)
            step = steps[key]
            if step is None:
                rest = chain([(batches, active)], feed)
                return BATCHED.fold(program, stage, context, unflatten(held, form), rest)
            with torch.no_grad():
                held = step(*leaves)
        return unflatten(held, form)

    def _note_keys(self, stage: Stage, step: Any, keys: list[int], leaves: list[Tensor]) -> None:
        """Examples' keys are drawn in later rounds only for a stage whose steps depend on them."""
        inputs = step.graph.find_nodes(op="placeholder") if step else []
        reads = not inputs or any(
            node.users for node, leaf in zip(inputs, leaves, strict=True) if id(leaf) in keys
        )
        known = self._reads_keys.setdefault(stage.name, reads)
        if reads and not known:
            raise RuntimeError(f"stage {stage.name} asks for keys that it did not ask for before")

    def _pays(self, program: Program) -> bool:
        return program.clock.rounds >= self.many and not program.task.structure.convolutional


def _owned(state: State) -> tuple[list[Tensor], Any]:
    """The leaves of a state in memory of their own, and its form."""
    leaves, form = flatten(state)
    return [leaf.clone(memory_format=torch.contiguous_format) for leaf in leaves], form


def _kinds(leaves: Sequence[Tensor]) -> Hashable:
    return tuple((leaf.shape, leaf.stride(), leaf.dtype) for leaf in leaves)


def _shapes(nodes: Sequence[fx.Node]) -> list[Any]:
    return [(node.meta["val"].shape, node.meta["val"].dtype) for node in nodes]


def _traced(program: Program, stage: Stage, leaves: list[Tensor], takes: Any) -> Step | None:
    """One step, which writes over the state it is given; None if it cannot be traced."""
    step = step_at(program, stage, BATCHED.lift)
    before = takes[2][0]

    def from_state(state: State, context: Context, moment: Moment, batches: Tree, active: Tree) -> State:
        return step(context, state, batches, active, moment)

    try:
        module, after = graph_of(from_state, leaves, takes)
        graph = module.graph
        new: Any = graph.output_node().args[0]
        state = graph.find_nodes(op="placeholder")[: len(new)]
        if after != before or _shapes(new) != _shapes(state):
            raise TypeError("the step changes the form of the state")
        turn_narrow_softmax(graph)
        simplify(module)
        own_memory(graph, state)
        write_over(graph, state)
        module.recompile()
    except Exception:  # whatever is wrong comes up when the step is vmapped
        return None
    return module
