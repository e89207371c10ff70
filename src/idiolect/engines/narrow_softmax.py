"""Softmax over few classes, computed across rows: a CPU takes an axis shorter than its vectors number by number."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

__all__ = ["turn_narrow_softmax"]

aten = torch.ops.aten
VECTOR = 16  # numbers of float32 that a core takes at once
TENSORS = {
    aten._log_softmax.default: 1,
    aten._softmax.default: 1,
    aten._log_softmax_backward_data.default: 2,
    aten._softmax_backward_data.default: 2,
}  # operation -> how many tensors it takes, before the axis


def turn_narrow_softmax(graph: fx.Graph) -> None:
    """Lets the rows lie along the last axis, where the softmax is over that and it is short.

    What comes out lies in memory as it did.
    """
    for node in graph.nodes:
        if node.target not in TENSORS:
            continue
        count, shape = TENSORS[node.target], node.meta["val"].shape
        axis = node.args[count]
        if len(shape) > 1 and axis % len(shape) == len(shape) - 1 and shape[-1] < VECTOR <= shape[-2]:
            with graph.inserting_before(node):
                turned = [_added(graph, aten.transpose.int, each, -2, -1) for each in node.args[:count]]
                found = _added(graph, node.target, *turned, len(shape) - 2, *node.args[count + 1 :])
                back = _added(graph, aten.transpose.int, found, -2, -1)
                as_before = _added(graph, aten.clone.default, back, memory_format=torch.contiguous_format)
            node.replace_all_uses_with(as_before)
            graph.erase_node(node)


def _added(graph: fx.Graph, operation: Any, *arguments: Any, **options: Any) -> fx.Node:
    node = graph.call_function(operation, arguments, options)
    values = [a.meta["val"] if isinstance(a, fx.Node) else a for a in arguments]
    node.meta["val"] = operation(*values, **options)
    return node
