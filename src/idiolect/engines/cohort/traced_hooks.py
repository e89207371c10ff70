"""Traced hooks: ``begin``, ``upload``, ``finish`` and the like on all clients, traced once and then run as graphs.

Under ``vmap`` such a hook costs milliseconds of Python in every round, for a handful of small operations.  A hook that
cannot be traced, for example because it decides by the round what to compute, runs under ``vmap`` in every round.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from idiolect.core import Context, Program, Stage, Tree
from idiolect.core.trees import Form, flatten, unflatten
from idiolect.engines.cohort.fingerprint import ProgramKeys, fingerprint
from idiolect.engines.cohort.tracing import RoundInputs, Trace, trace, traced_or_none
from idiolect.engines.packing import BATCHED_LAYERS, hook_of

__all__ = ["TracedHooks"]


class _KnownHook(NamedTuple):
    """The form of the arguments that a hook was traced for, and its trace; None where it cannot be traced."""

    takes: Form
    trace: Trace | None


@dataclass
class TracedHooks:
    """The hooks of a run, by what they compute and the shapes that they compute on."""

    keys: ProgramKeys
    _known: dict[Hashable, _KnownHook] = field(default_factory=dict)

    def call(self, program: Program, name: str, stage: Stage | None, context: Context, *trees: Tree) -> Any:
        """Returns what the hook ``name`` gives for all clients; ``stage`` is None where a hook belongs to none."""
        inputs = RoundInputs.of(program.clock, 1.0, context.facts.samples.dtype)
        flat, takes = flatten((context, *trees, inputs))
        part = stage and (
            stage.start,
            stage.measure,
            stage.objective is None,
            stage.trainable,
            stage.optimiser,
        )
        kinds = tuple((leaf.shape, leaf.stride(), leaf.dtype) for leaf in flat)
        key = (name, self.keys(program), fingerprint(part), stage and stage.owner, kinds)
        known = self._known.get(key)
        if known is None or known.takes != takes:
            known = self._known[key] = _KnownHook(takes, _trace_hook(program, name, stage, flat, takes))
        if known.trace is None:
            return BATCHED_LAYERS.call(program, name, stage, context, *trees)
        with torch.no_grad():
            return unflatten(known.trace.graph(*flat), known.trace.gives)


def _trace_hook(
    program: Program, name: str, stage: Stage | None, flat: list[Tensor], takes: Form
) -> Trace | None:
    def hook(program: Program, *trees: Tree) -> Any:
        *given, _ = trees  # no hook reads the scale of a stage's learning rate here
        return BATCHED_LAYERS.lift(hook_of(program, name, stage))(*given)

    found = traced_or_none(lambda: trace(program, hook, [torch.empty_like(leaf) for leaf in flat], takes))
    if found is not None:
        found.graph.graph.eliminate_dead_code()
        found.graph.recompile()
    return found
