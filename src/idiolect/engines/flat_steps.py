"""Steps of a cohort on a CPU as lists of tensor operations, traced once: under vmap each costs milliseconds of Python.

Tracing pays in a run of many rounds of a network without convolutions.  In others, and where a step cannot be traced,
it is vmapped.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from idiolect.core import Context, Program, Stage, State, Tree
from idiolect.core.trees import flatten, unflatten
from idiolect.engines.fingerprint import ProgramKeys, fingerprint
from idiolect.engines.packing import BATCHED, Feed, Packing, advance
from idiolect.engines.steps import Moment, step_at
from idiolect.engines.traced_hooks import TracedHooks

__all__ = ["FlatSteps"]

MANY = 20  # rounds of a run from which tracing pays

VIEWS = {torch.ops.aten.expand.default, torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default}

Step = Callable[
    ..., list[Tensor]
]  # leaves of (context, state, batches, active, moment) -> leaves of the state


@dataclass
class FlatSteps:
    """Args:
    many: rounds of a run from which its steps are traced.
    """

    many: int = MANY
    _keys: ProgramKeys = field(default_factory=ProgramKeys)
    _steps: dict[Hashable, Step | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._hooks = TracedHooks(self._keys)

    @property
    def packing(self) -> Packing:
        return BATCHED._replace(fold=self.fold, call=self.call)

    def call(self, program: Program, name: str, stage: Stage | None, context: Context, *trees: Tree) -> Any:
        hooks = self._hooks if self._pays(program) else BATCHED
        return hooks.call(program, name, stage, context, *trees)

    def fold(self, program: Program, stage: Stage, context: Context, state: State, feed: Feed) -> State:
        if not self._pays(program):
            return BATCHED.fold(program, stage, context, state, feed)
        now = (program.clock.round, program.clock.learning_rate, stage.lr_scale)
        moment = Moment(*(torch.full_like(context.facts.samples[0], number) for number in now))
        parts = (stage.owner, stage.objective, stage.measure, stage.trainable, stage.optimiser)
        same = (self._keys(program), fingerprint(parts))
        for batches, active in feed:
            arguments = (context, state, batches, () if active is None else (active,), moment)
            leaves, form = flatten(arguments)
            key = (*same, form, tuple((leaf.shape, leaf.stride(), leaf.dtype) for leaf in leaves))
            if key not in self._steps:
                self._steps[key] = _traced(program, stage, leaves, form)
            step = self._steps[key]
            if step is None:
                state = BATCHED.lift(advance(program, stage))(context, state, batches, *arguments[3])
            else:
                with torch.no_grad():
                    state = unflatten(step(*leaves), form[2][1])
        return state

    def _pays(self, program: Program) -> bool:
        return program.clock.rounds >= self.many and not program.task.structure.convolutional


def _traced(program: Program, stage: Stage, leaves: list[Tensor], form: Any) -> Step | None:
    step = step_at(program, stage, BATCHED.lift)
    before = form[2][1]

    def on_leaves(*flat: Tensor) -> list[Tensor]:
        found, after = flatten(step(*unflatten(flat, form)))
        if after != before:
            raise TypeError("the step changes the form of the state")
        return found

    examples = [
        torch.empty_like(leaf) for leaf in leaves
    ]  # objects of their own, by which a trace knows them
    try:
        graph = make_fx(on_leaves, tracing_mode="fake", _allow_non_fake_inputs=True)(*examples)
    except Exception:  # whatever is wrong comes up when the step is vmapped
        return None
    _drop_idle(graph.graph)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def _drop_idle(graph: torch.fx.Graph) -> None:
    """Takes out the views that vmap leaves behind and that show what they look at as it is."""
    for node in graph.nodes:
        if node.target in VIEWS and _shown(node) == _shown(node.args[0]):
            node.replace_all_uses_with(node.args[0])


def _shown(node: torch.fx.Node) -> tuple[Any, ...]:
    value = node.meta["val"]
    return value.shape, value.stride()
