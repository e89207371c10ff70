"""Hooks of a program on a whole group (``begin``, ``upload``, ``finish``, ...), traced once and then run flat.

Under ``vmap`` such a hook costs milliseconds of Python in every round, for a handful of small operations.  The round
and the learning rate are inputs; a hook that decides by them what to compute is called anew every time.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from idiolect.core import Clock, Context, Program, Stage, Tree
from idiolect.core.trees import flatten, unflatten
from idiolect.engines.fingerprint import ProgramKeys, fingerprint
from idiolect.engines.packing import BATCHED_LAYERS, hook_of

__all__ = ["TracedHooks"]


@dataclass
class _Kept:
    takes: Hashable
    graph: torch.fx.GraphModule | None  # None: to be called anew in every round
    gives: Hashable


@dataclass
class TracedHooks:
    keys: ProgramKeys
    _kept: dict[Hashable, _Kept] = field(default_factory=dict)

    def call(self, program: Program, name: str, stage: Stage | None, context: Context, *trees: Tree) -> Any:
        flat, takes = flatten((context, *trees))
        part = stage and (
            stage.start,
            stage.measure,
            stage.objective is None,
            stage.trainable,
            stage.optimiser,
        )
        kinds = tuple((leaf.shape, leaf.dtype) for leaf in flat)
        key = (name, self.keys(program), fingerprint(part), stage and stage.owner, kinds)
        kept = self._kept.get(key)
        if kept is None or kept.takes != takes:
            kept = self._kept[key] = _traced(program, name, stage, context, flat, takes)
        if kept.graph is None:
            return BATCHED_LAYERS.call(program, name, stage, context, *trees)
        with torch.no_grad():
            return unflatten(kept.graph(*flat, *_moment(program.clock, context)), kept.gives)


def _moment(clock: Clock, context: Context) -> list[Tensor]:
    """Round and learning rate, in the run's precision; numbers need not lie on its device."""
    dtype = context.facts.samples.dtype
    return [torch.tensor(number, dtype=dtype) for number in (clock.round, clock.learning_rate)]


def _traced(
    program: Program, name: str, stage: Stage | None, context: Context, flat: list[Tensor], takes: Hashable
) -> _Kept:
    gives: list[Hashable] = []

    def on_leaves(*given: Tensor) -> list[Tensor]:
        *leaves, round, rate = given
        clock = program.clock._replace(round=round, learning_rate=rate)  # type: ignore[arg-type]
        function = BATCHED_LAYERS.lift(hook_of(replace(program, clock=clock), name, stage))
        found, shape = flatten(function(*unflatten(leaves, takes)))
        gives.append(shape)
        return found

    examples = [torch.empty_like(leaf) for leaf in flat]  # objects of their own, by which a trace knows them
    examples += _moment(program.clock, context)
    try:
        with torch.device(flat[0].device):
            graph = make_fx(on_leaves, tracing_mode="fake", _allow_non_fake_inputs=True)(*examples)
    except Exception:  # whatever is wrong comes up when the hook is called as it is
        return _Kept(takes, None, None)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return _Kept(takes, graph, gives[-1])
