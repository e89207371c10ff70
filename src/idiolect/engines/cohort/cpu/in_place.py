"""The memory of a traced step: a leaf of the state that is read no more is written over.

Every leaf of the state has memory of its own, before a step and after it; nothing else may hold on to it.
"""

from __future__ import annotations

from operator import getitem

import torch
from torch import fx

__all__ = ["own_memory", "write_over"]

aten = torch.ops.aten
ALSO_VIEWS = {getitem, aten._unsafe_view.default}  # though their schemas do not say so
IN_PLACE = {
    aten.add.Tensor: aten.add_.Tensor,
    aten.addcmul.default: aten.addcmul_.default,
    aten.baddbmm.default: aten.baddbmm_.default,
}


def own_memory(graph: fx.Graph, state: list[fx.Node]) -> None:
    """Copies what a step gives where it is a view, stands in two places or is not the step's to give.

    Args:
        state: the inputs whose new values, in the same order, the graph gives.
    """
    output = graph.output_node()
    taken: set[fx.Node] = set()
    given = []
    for old, new in zip(state, output.args[0], strict=True):  # type: ignore[arg-type]
        memory = _memory(new)
        if new is not old and (memory in taken or memory.op != "call_function"):
            with graph.inserting_before(output):
                new = graph.call_function(aten.clone.default, (new,))
        taken.add(memory)
        given.append(new)
    output.args = (given,)


def write_over(graph: fx.Graph, state: list[fx.Node]) -> None:
    """Lets sums go where their first summand was, if that is one of ``state`` and nobody reads it afterwards."""
    place = {node: n for n, node in enumerate(graph.nodes)}
    last = {_memory(read): place[node] for node in graph.nodes for read in node.all_input_nodes}
    for node in graph.nodes:
        if node.target in IN_PLACE and node.args[0] in state:
            old, *others = node.args
            alone = all(_memory(other) is not old for other in others if isinstance(other, fx.Node))
            if alone and last[old] == place[node] and _kind(old) == _kind(node):
                node.target = IN_PLACE[node.target]


def _memory(node: fx.Node) -> fx.Node:
    """The node that ``node`` is a view of; itself, if it has memory of its own."""
    while node.op == "call_function" and (node.target in ALSO_VIEWS or _gives_views(node.target)):
        node = node.args[0]  # type: ignore[assignment]
    return node


def _gives_views(operation: torch._ops.OpOverload) -> bool:
    return any(given.alias_info is not None for given in operation._schema.returns)


def _kind(node: fx.Node) -> tuple[object, ...]:
    value = node.meta["val"]
    return value.shape, value.stride(), value.dtype
