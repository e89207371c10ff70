"""Hooks of a program on a whole group (``begin``, ``upload``, ``finish``, ...), traced once and then run flat.

Under ``vmap`` such a hook costs milliseconds of Python in every round, for a handful of small operations.  A hook that
asks for the round or the learning rate is not kept: what it computes may change.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from idiolect.core import Clock, Context, Program, Stage, Tree
from idiolect.core.trees import flatten, unflatten
from idiolect.engines.fingerprint import ProgramKeys, fingerprint
from idiolect.engines.flat_graph import graph_of
from idiolect.engines.packing import BATCHED_LAYERS, hook_of

__all__ = ["TracedHooks"]


class _Watched(Clock):
    """A clock that notices when it is asked for what changes from round to round."""

    asked: bool = False

    @property
    def round(self) -> int:
        self.asked = True
        return self[0]  # type: ignore[no-any-return]

    @property
    def learning_rate(self) -> float:
        self.asked = True
        return self[5]  # type: ignore[no-any-return]


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
            kept = self._kept[key] = _traced(program, name, stage, flat, takes)
        if kept.graph is None:
            return BATCHED_LAYERS.call(program, name, stage, context, *trees)
        with torch.no_grad():
            return unflatten(kept.graph(*flat), kept.gives)


def _traced(program: Program, name: str, stage: Stage | None, flat: list[Tensor], takes: Hashable) -> _Kept:
    clock = _Watched(*program.clock)
    function = BATCHED_LAYERS.lift(hook_of(replace(program, clock=clock), name, stage))
    try:
        module, gives = graph_of(function, flat, takes)
    except Exception:  # whatever is wrong comes up when the hook is called as it is
        return _Kept(takes, None, None)
    module.graph.eliminate_dead_code()
    module.recompile()
    return _Kept(takes, None if clock.asked else module, gives)
