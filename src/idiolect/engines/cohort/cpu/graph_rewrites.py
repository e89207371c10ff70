"""Rewrites of the graph of a traced CPU step: fewer operations, less memory, cheaper calls.

On a CPU every operation costs microseconds of Python, however small it is.  ``simplify`` takes operations out,
``row_major`` lays softmax and matrix products out for vector instructions, ``own_memory`` and ``write_over`` let a step
write over the state it is given, and ``call_plainly`` comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

__all__ = ["PLAIN", "call_plainly", "own_memory", "row_major", "simplify", "write_over"]

aten = torch.ops.aten
SHAPED = {aten.new_zeros.default, aten.ones_like.default, aten.zeros_like.default}  # read shapes, not numbers
MAX_CONSTANT = 1 << 16  # numbers of a constant that a graph keeps
VIEWS = {aten.expand.default, aten.view.default, aten._unsafe_view.default, aten.transpose.int}
ALSO_VIEWS = {getitem, aten._unsafe_view.default}  # views whose schemas do not say so
IN_PLACE = {
    aten.add.Tensor: aten.add_.Tensor,
    aten.addcmul.default: aten.addcmul_.default,
    aten.baddbmm.default: aten.baddbmm_.default,
}
PLAIN = {
    aten._log_softmax.default: torch._log_softmax,
    aten._log_softmax_backward_data.default: torch._log_softmax_backward_data,
    aten.add.Tensor: torch.add,
    aten.add_.Tensor: Tensor.add_,
    aten.addcmul_.default: Tensor.addcmul_,
    aten.baddbmm_.default: Tensor.baddbmm_,
    aten.bmm.default: torch.bmm,
    aten.clamp.default: torch.clamp,
    aten.clone.default: torch.clone,
    aten.div.Tensor: torch.div,
    aten.expand.default: Tensor.expand,
    aten.gather.default: torch.gather,
    aten.gt.Scalar: torch.gt,
    aten.mul.Tensor: torch.mul,
    aten.neg.default: torch.neg,
    aten.relu.default: torch.relu,
    aten.scatter_add.default: torch.scatter_add,
    aten.select.int: torch.select,
    aten.squeeze.dims: torch.squeeze,
    aten.sub.Tensor: torch.sub,
    aten.sum.dim_IntList: torch.sum,
    aten.transpose.int: torch.transpose,
    aten.unsqueeze.default: torch.unsqueeze,
    aten.view.default: Tensor.view,
    aten.where.self: torch.where,
}  # what steps of dense networks are made of
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


def simplify(module: fx.GraphModule) -> None:
    """Removes operations that change nothing, are computed twice or are always the same.

    A graph with in-place or random operations stays as it is.
    """
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
    """Whether the operation gives the same result whenever it is called, and changes none of its arguments."""
    if operation is getitem:
        return True
    return not operation._schema.is_mutable and torch.Tag.nondeterministic_seeded not in operation.tags


def _drop_factors_of_one(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.mul.Scalar):
        if node.args[1] == 1 and _layout(node) == _layout(node.args[0]):
            node.replace_all_uses_with(node.args[0])


def _drop_idle_views(graph: fx.Graph) -> None:
    """Removes chains of views that end in the shape and strides they began with."""
    for node in graph.nodes:
        seen = node
        while seen.target in VIEWS:
            seen = seen.args[0]
            if _layout(seen) == _layout(node):
                node.replace_all_uses_with(seen)
                break


def _compute_once(graph: fx.Graph) -> None:
    """Merges operations with equal arguments into the first of them."""
    known: dict[tuple[Any, ...], fx.Node] = {}
    for node in _operations(graph):
        first = known.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
        node.replace_all_uses_with(first)


def _keep_constants(module: fx.GraphModule) -> None:
    """Computes now what depends on no numbers of the inputs, unless the result is large."""
    graph = module.graph
    known: dict[fx.Node, Any] = {
        node: getattr(module, node.target) for node in graph.find_nodes(op="get_attr")
    }
    values: dict[fx.Node, Any]
    for node in _operations(graph):
        if node.target in SHAPED:
            like: Any = node.args[0]
            example = like.meta["val"]
            values = {like: torch.empty_strided(example.shape, example.stride(), dtype=example.dtype)}
        elif all(each in known for each in node.all_input_nodes):
            values = known
        else:
            continue
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor) or value.numel() <= MAX_CONSTANT:
            arguments = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            compute: Any = node.target
            known[node] = compute(*arguments[0], **arguments[1])
    for node, value in known.items():
        if node.op == "call_function" and isinstance(value, torch.Tensor):
            module.register_buffer(f"_{node.name}", value)
            with graph.inserting_before(node):
                constant = graph.get_attr(f"_{node.name}")
            constant.meta = node.meta
            node.replace_all_uses_with(constant)


def _add_in_products(graph: fx.Graph) -> None:
    """Fuses ``a @ b + beta * c``, such as a gradient added to a velocity, into one ``baddbmm``."""
    for node in graph.nodes:
        if node.target is not aten.add.Tensor:
            continue
        product, other = node.args
        alone = product.target is aten.bmm.default and len(product.users) == 1
        if alone and _layout(product) == _layout(other):
            with graph.inserting_before(node):
                total = graph.call_function(
                    aten.baddbmm.default, (other, *product.args), {"beta": node.kwargs.get("alpha", 1)}
                )
            total.meta = node.meta
            node.replace_all_uses_with(total)


def _layout(node: Any) -> tuple[Any, ...] | None:
    """Returns shape, strides, offset and type of a tensor; None for a number."""
    if not isinstance(node, fx.Node):
        return None
    value = node.meta["val"]
    return value.shape, value.stride(), value.storage_offset(), value.dtype


def row_major(module: fx.GraphModule) -> fx.GraphModule:
    """Computes softmax and matrix products with the rows of a batch along the last axis in memory.

    PyTorch's softmax is not vectorised when the last axis is short, such as a few classes, and a product with an odd
    number of columns leaves vectors partly empty.  The rows of a batch fill vectors, so that both run on transposed
    tensors, whose results are transposed back.

    Returns:
        The rewritten step, or the step itself where its results would get other strides.
    """
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


def own_memory(graph: fx.Graph, state: list[fx.Node]) -> None:
    """Gives every leaf of the new state memory of its own.

    A result is copied where it is a view, is returned twice or is an input that the step passes on elsewhere.

    Args:
        state: the inputs whose new values the graph returns, in the same order.
    """
    output = graph.output_node()
    taken: set[fx.Node] = set()
    given = []
    results: Any = output.args[0]
    for old, new in zip(state, results, strict=True):
        memory = _memory(new)
        if new is not old and (memory in taken or memory.op != "call_function"):
            with graph.inserting_before(output):
                new = graph.call_function(aten.clone.default, (new,))
        taken.add(memory)
        given.append(new)
    output.args = (given,)


def write_over(graph: fx.Graph, state: list[fx.Node]) -> None:
    """Turns sums into in-place sums where the first summand is in ``state`` and is not read afterwards.

    Every leaf of the state must have memory of its own, which nothing else holds on to.
    """
    place = {node: n for n, node in enumerate(graph.nodes)}
    last = {_memory(read): place[node] for node in graph.nodes for read in node.all_input_nodes}
    for node in graph.nodes:
        if node.target in IN_PLACE and node.args[0] in state:
            old, *others = node.args
            alone = all(_memory(other) is not old for other in others if isinstance(other, fx.Node))
            if alone and last[old] == place[node] and _kind(old) == _kind(node):
                node.target = IN_PLACE[node.target]


def _memory(node: fx.Node) -> fx.Node:
    """Returns the node whose memory ``node`` shows; itself, unless it is a view."""
    while node.op == "call_function" and (node.target in ALSO_VIEWS or _gives_views(node.target)):
        seen: Any = node.args[0]
        node = seen
    return node


def _gives_views(operation: Any) -> bool:
    return any(given.alias_info is not None for given in operation._schema.returns)


def _kind(node: fx.Node) -> tuple[object, ...]:
    value = node.meta["val"]
    return value.shape, value.stride(), value.dtype


def call_plainly(graph: fx.Graph) -> None:
    """Replaces operations of ``torch.ops`` by functions of PyTorch that are quicker to call.

    It is the last rewrite: the others look for operations of ``torch.ops``.
    """
    for node in graph.nodes:
        node.target = PLAIN.get(node.target, node.target)
