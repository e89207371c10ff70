"""A traced step with fewer operations: on a CPU each costs microseconds of Python, however small."""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch import fx

__all__ = ["simplify"]

aten = torch.ops.aten
SHAPED = {aten.new_zeros.default, aten.ones_like.default, aten.zeros_like.default}  # by what they are given
MOST_KEPT = 1 << 16  # numbers of a constant
VIEWS = {aten.expand.default, aten.view.default, aten._unsafe_view.default, aten.transpose.int}


def simplify(module: fx.GraphModule) -> None:
    """Takes out what is idle, computed twice or always the same; a graph with operations in place or draws stays."""
    graph = module.graph
    graph.eliminate_dead_code()
    if all(_pure(node.target) for node in _operations(graph)):
        _drop_factors_of_one(graph)
        _drop_idle_views(graph)
        _compute_once(graph)
        _keep_constants(module)
        graph.eliminate_dead_code()
        _add_in_products(graph)
        graph.eliminate_dead_code()


def _operations(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _pure(operation: Any) -> bool:
    """Whether it gives the same whenever it is called, and changes nothing."""
    if operation is getitem:
        return True
    return not operation._schema.is_mutable and torch.Tag.nondeterministic_seeded not in operation.tags


def _drop_factors_of_one(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.mul.Scalar):
        if node.args[1] == 1 and _shown(node) == _shown(node.args[0]):
            node.replace_all_uses_with(node.args[0])


def _drop_idle_views(graph: fx.Graph) -> None:
    """Takes out chains of views that show what they look at as it is."""
    for node in graph.nodes:
        seen = node
        while seen.target in VIEWS:
            seen = seen.args[0]
            if _shown(seen) == _shown(node):
                node.replace_all_uses_with(seen)
                break


def _compute_once(graph: fx.Graph) -> None:
    """Lets operations that are the same share what they give."""
    known: dict[tuple[Any, ...], fx.Node] = {}
    for node in _operations(graph):
        first = known.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
        node.replace_all_uses_with(first)


def _keep_constants(module: fx.GraphModule) -> None:
    """Computes what depends on the numbers of no input now, unless it would hold much memory."""
    graph = module.graph
    known: dict[fx.Node, Any] = {
        node: getattr(module, node.target) for node in graph.find_nodes(op="get_attr")
    }
    for node in _operations(graph):
        if node.target in SHAPED:
            example = node.args[0].meta["val"]  # type: ignore[union-attr]
            values = {node.args[0]: torch.empty_strided(example.shape, example.stride(), dtype=example.dtype)}
        elif all(each in known for each in node.all_input_nodes):
            values = known
        else:
            continue
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor) or value.numel() <= MOST_KEPT:
            arguments = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            known[node] = node.target(*arguments[0], **arguments[1])
    for node, value in known.items():
        if node.op == "call_function" and isinstance(value, torch.Tensor):
            module.register_buffer(f"_{node.name}", value)
            with graph.inserting_before(node):
                constant = graph.get_attr(f"_{node.name}")
            constant.meta = node.meta
            node.replace_all_uses_with(constant)


def _add_in_products(graph: fx.Graph) -> None:
    """``a @ b + beta * c`` as one operation, such as a gradient that is added to a velocity."""
    for node in graph.nodes:
        if node.target is not aten.add.Tensor:
            continue
        product, other = node.args
        alone = product.target is aten.bmm.default and len(product.users) == 1
        if alone and _shown(product) == _shown(other):
            with graph.inserting_before(node):
                total = graph.call_function(
                    aten.baddbmm.default, (other, *product.args), {"beta": node.kwargs.get("alpha", 1)}
                )
            total.meta = node.meta
            node.replace_all_uses_with(total)


def _shown(node: Any) -> tuple[Any, ...] | None:
    """What there is to see of a tensor; None of a number."""
    if not isinstance(node, fx.Node):
        return None
    value = node.meta["val"]
    return value.shape, value.stride(), value.storage_offset(), value.dtype
