"""Softmax and matrix products of a traced CPU step with the rows of a batch along the last axis in memory.

PyTorch's softmax is not vectorised when the last axis is short, such as a few classes, and a product with an odd
number of columns leaves vectors partly empty.  The rows of a batch fill vectors, so that both run on transposed
tensors, whose results are transposed back.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

__all__ = ["row_major"]

aten = torch.ops.aten
VECTOR = 16  # float32 numbers that a core computes on at once
SOFTMAX = {
    aten._log_softmax.default: 1,
    aten._softmax.default: 1,
    aten._log_softmax_backward_data.default: 2,
    aten._softmax_backward_data.default: 2,
}  # operation -> number of tensors that it takes before the axis
BY_STRIDES = {
    aten.as_strided.default,
    aten._reshape_alias.default,
}  # they depend on the strides of their input


def row_major(module: fx.GraphModule) -> fx.GraphModule:
    """Returns the rewritten step, or the step itself where its results would get other strides."""
    if any(node.target in BY_STRIDES for node in module.graph.nodes):
        return module
    for rewrite in (_transpose_softmax, _transpose_product):
        module = _rewritten(module, rewrite)
    return module


def _rewritten(module: fx.GraphModule, rewrite: Callable[[fx.Graph, fx.Node], None]) -> fx.GraphModule:
    found = deepcopy(module)
    graph = found.graph
    for node in list(graph.nodes):
        rewrite(graph, node)
    given = [node.meta["val"] for node in graph.find_nodes(op="placeholder")]
    try:
        FakeTensorProp(found, given[0].fake_mode).propagate_dont_convert_inputs(*given)
    except (RuntimeError, ValueError):  # a view needs contiguous rows
        return module
    return found if _strides(graph) == _strides(module.graph) else module


def _transpose_softmax(graph: fx.Graph, node: fx.Node) -> None:
    if node.target not in SOFTMAX:
        return
    count, shape = SOFTMAX[node.target], node.meta["val"].shape
    axis: Any = node.args[count]
    if len(shape) > 1 and axis % len(shape) == len(shape) - 1 and shape[-1] < VECTOR <= shape[-2]:
        _replace(graph, node, node.args[:count], (len(shape) - 2, *node.args[count + 1 :]))


def _transpose_product(graph: fx.Graph, node: fx.Node) -> None:
    """Computes ``a b`` as ``(b' a')'``."""
    if node.target is not aten.bmm.default:
        return
    _, rows, columns = node.meta["val"].shape
    if rows % VECTOR == 0 and columns % VECTOR:
        _replace(graph, node, node.args[::-1], ())


def _replace(graph: fx.Graph, node: fx.Node, tensors: Any, options: tuple[Any, ...]) -> None:
    with graph.inserting_before(node):
        across = [graph.call_function(aten.transpose.int, (each, -2, -1)) for each in tensors]
        operation: Any = node.target
        found = graph.call_function(operation, (*across, *options))
        back = graph.call_function(aten.transpose.int, (found, -2, -1))
    node.replace_all_uses_with(back)
    graph.erase_node(node)


def _strides(graph: fx.Graph) -> list[tuple[int, ...]]:
    given: Any = graph.output_node().args[0]
    return [node.meta["val"].stride() for node in given]
