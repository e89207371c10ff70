"""One step of a block of clients as a graph of tensor operations that writes over the state it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from idiolect.core import Context, Program, Stage, State, Tree
from idiolect.engines.cohort.cpu.graph_rewrites import simplify
from idiolect.engines.cohort.cpu.in_place import own_memory, write_over
from idiolect.engines.cohort.cpu.plain_calls import call_plainly
from idiolect.engines.cohort.cpu.row_major_softmax import turned
from idiolect.engines.cohort.cuda.traced_step import Moment, step_at
from idiolect.engines.cohort.tracing import graph_of
from idiolect.engines.packing import BATCHED

__all__ = ["depends_on", "traced_step"]


def traced_step(program: Program, stage: Stage, leaves: list[Tensor], takes: Any) -> fx.GraphModule | None:
    """Leaves of (state, context, moment, batches) -> leaves of the state, whose old ones are written over.

    None if a step cannot be traced.
    """
    step = step_at(program, stage, BATCHED.lift)
    before = takes[2][0]

    def from_state(state: State, context: Context, moment: Moment, batches: Tree) -> State:
        return step(context, state, batches, (), moment)

    try:
        module, after = graph_of(from_state, [torch.empty_like(leaf) for leaf in leaves], takes)
        if after != before or _shapes(_new(module.graph)) != _shapes(_old(module.graph)):
            raise TypeError("the step changes the form of the state")
    except Exception:  # whatever is wrong comes up when the step is vmapped
        return None
    simplify(module)
    module = turned(module)
    simplify(module)
    own_memory(module.graph, _old(module.graph))
    write_over(module.graph, _old(module.graph))
    call_plainly(module.graph)
    module.recompile()
    return module


def depends_on(step: fx.GraphModule | None, leaves: list[Tensor], which: list[int]) -> bool:
    """Whether a step depends on leaves, given by identity; one that is not traced may."""
    if step is None:
        return True
    inputs = step.graph.find_nodes(op="placeholder")
    return any(node.users for node, leaf in zip(inputs, leaves, strict=True) if id(leaf) in which)


def _new(graph: fx.Graph) -> list[fx.Node]:
    given: Any = graph.output_node().args[0]
    return list(given)


def _old(graph: fx.Graph) -> list[fx.Node]:
    return graph.find_nodes(op="placeholder")[: len(_new(graph))]


def _shapes(nodes: Sequence[fx.Node]) -> list[Any]:
    return [(node.meta["val"].shape, node.meta["val"].dtype) for node in nodes]
