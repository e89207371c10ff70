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

from idiolect.core import Clock, Context, Program, Stage, Tree
from idiolect.core.trees import flatten, unflatten
from idiolect.engines.cohort.fingerprint import ProgramKeys, fingerprint
from idiolect.engines.cohort.traced_number import Unknown
from idiolect.engines.cohort.tracing import graph_of
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
        flat, takes = flatten(((context, *trees), _moment(program.clock, context)))
        part = stage and (
            stage.start,
            stage.measure,
            stage.objective is None,
            stage.trainable,
            stage.optimiser,
        )
        kinds = tuple((leaf.shape, leaf.stride(), leaf.dtype) for leaf in flat)
        key = (name, self.keys(program), fingerprint(part), stage and stage.owner, kinds)
        kept = self._kept.get(key)
        if kept is None or kept.takes != takes:
            kept = self._kept[key] = _traced(program, name, stage, flat, takes)
        if kept.graph is None:
            return BATCHED_LAYERS.call(program, name, stage, context, *trees)
        with torch.no_grad():
            return unflatten(kept.graph(*flat), kept.gives)


def _moment(clock: Clock, context: Context) -> list[Tensor]:
    """Round and learning rate, in the run's precision; numbers need not lie on its device."""
    dtype = context.facts.samples.dtype
    return [torch.tensor(number, dtype=dtype) for number in (clock.round, clock.learning_rate)]


def _traced(program: Program, name: str, stage: Stage | None, flat: list[Tensor], takes: Hashable) -> _Kept:
    def hook(trees: tuple[Tree, ...], moment: list[Tensor]) -> Any:
        clock = program.clock._replace(round=Unknown(moment[0]), learning_rate=Unknown(moment[1]))
        return BATCHED_LAYERS.lift(hook_of(replace(program, clock=clock), name, stage))(*trees)

    try:
        module, gives = graph_of(hook, [torch.empty_like(leaf) for leaf in flat], takes)
    except Exception:  # whatever is wrong comes up when the hook is called as it is
        return _Kept(takes, None, None)
    module.graph.eliminate_dead_code()
    module.recompile()
    return _Kept(takes, module, gives)
