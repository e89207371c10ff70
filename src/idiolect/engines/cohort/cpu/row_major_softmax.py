"""Operations across rows, where their last axis is too short or too odd for a CPU's vectors.

A softmax over few classes is else computed number by number, and a product with 100 columns by vectors of which one is
mostly empty.  The rows of a batch fill vectors: they are laid along the last axis, and looked at as before.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

__all__ = ["turned"]

aten = torch.ops.aten
VECTOR = 16  # numbers of float32 that a core takes at once
SOFTMAX = {
    aten._log_softmax.default: 1,
    aten._softmax.default: 1,
    aten._log_softmax_backward_data.default: 2,
    aten._softmax_backward_data.default: 2,
}  # operation -> how many tensors it takes, before the axis
BY_STRIDES = {aten.as_strided.default, aten._reshape_alias.default}  # they say where in memory they look


def turned(module: fx.GraphModule) -> fx.GraphModule:
    """The same step across rows; as it was, where what comes out would lie in memory in another way."""
    if any(node.target in BY_STRIDES for node in module.graph.nodes):
        return module
    for turn in (_turn_softmax, _turn_product):
        module = _turned(module, turn)
    return module


def _turned(module: fx.GraphModule, turn: Callable[[fx.Graph, fx.Node], None]) -> fx.GraphModule:
    found = deepcopy(module)
    graph = found.graph
    for node in list(graph.nodes):
        turn(graph, node)
    given = [node.meta["val"] for node in graph.find_nodes(op="placeholder")]
    try:
        FakeTensorProp(found, given[0].fake_mode).propagate_dont_convert_inputs(*given)
    except (RuntimeError, ValueError):  # a view asks for rows that follow each other in memory
        return module
    return found if _layout(graph) == _layout(module.graph) else module


def _turn_softmax(graph: fx.Graph, node: fx.Node) -> None:
    if node.target not in SOFTMAX:
        return
    count, shape = SOFTMAX[node.target], node.meta["val"].shape
    axis: Any = node.args[count]
    if len(shape) > 1 and axis % len(shape) == len(shape) - 1 and shape[-1] < VECTOR <= shape[-2]:
        _replace(graph, node, node.args[:count], (len(shape) - 2, *node.args[count + 1 :]))


def _turn_product(graph: fx.Graph, node: fx.Node) -> None:
    """``a b = (b' a')'``."""
    if node.target is not aten.bmm.default:
        return
    _, rows, columns = node.meta["val"].shape
    if rows % VECTOR == 0 and columns % VECTOR:
        _replace(graph, node, node.args[::-1], ())


def _replace(graph: fx.Graph, node: fx.Node, tensors: Any, options: tuple[Any, ...]) -> None:
    with graph.inserting_before(node):
        across = [graph.call_function(aten.transpose.int, (each, -2, -1)) for each in tensors]
        found = graph.call_function(node.target, (*across, *options))
        back = graph.call_function(aten.transpose.int, (found, -2, -1))
    node.replace_all_uses_with(back)
    graph.erase_node(node)


def _layout(graph: fx.Graph) -> list[tuple[int, ...]]:
    given: Any = graph.output_node().args[0]
    return [node.meta["val"].stride() for node in given]
