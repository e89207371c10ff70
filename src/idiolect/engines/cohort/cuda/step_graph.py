"""A step of a cohort as a graph of tensor operations, written down once and then run without Python.

The graph updates the state in place and reads only what the step depends on.  Numbers that Python holds (weights of
terms, temperatures, rates) become inputs, so that steps which differ in nothing else share one compiled graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, fx

from idiolect.core import Tree
from idiolect.core.trees import flatten, tree_leaves
from idiolect.engines.cohort.tracing import graph_of

__all__ = ["Traced", "trace"]

aten = torch.ops.aten
ARITHMETIC = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}


class Traced(NamedTuple):
    """Args:
    graph: takes the used inputs, then the constants; changes the state's leaves among them.
    used: which leaves of the arguments it reads, in order.
    changed: which of its inputs it changes, all of them the state's.
    constants: tensors that the step closes over, and its lifted numbers.
    text: the same for two graphs that compute the same.
    """

    graph: fx.GraphModule
    used: tuple[int, ...]
    changed: tuple[int, ...]
    constants: tuple[Tensor, ...]
    text: str


def trace(step: Callable[..., Tree], arguments: tuple[Tree, ...], state_at: int) -> Traced:
    """The graph of ``state = step(*arguments)``, where the argument ``state_at`` is the state before."""
    flat, takes = flatten(arguments)
    module, _ = graph_of(step, flat, takes)
    first = len(tree_leaves(arguments[:state_at]))
    changed = _write_back(module.graph, first)
    module.graph.eliminate_dead_code()
    used = _drop_unused(module.graph)
    changed = tuple(used.index(i) for i in changed)
    constants = [*_lift_tensors(module), *_lift_numbers(module.graph, flat[0].device)]
    module.graph.lint()
    module.recompile()
    kinds = [(tuple(t.shape), t.dtype, t.stride()) for t in (*(flat[i] for i in used), *constants)]
    return Traced(module, used, changed, tuple(constants), f"{module.code}\n{kinds}")


def _write_back(graph: fx.Graph, first: int) -> tuple[int, ...]:
    """Puts the new state in place of the old; a leaf that the step hands on as it is stays."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    output = next(iter(reversed(graph.nodes)))
    new = output.args[0]
    changed = tuple(first + i for i, node in enumerate(new) if node is not inputs[first + i])
    with graph.inserting_before(output):
        for i in changed:
            graph.call_function(aten.copy_.default, (inputs[i], new[i - first]))
    output.args = ((),)
    return changed


def _drop_unused(graph: fx.Graph) -> tuple[int, ...]:
    """Which inputs are left; they are called by their order, so that the text depends on nothing else."""
    used = []
    for i, node in enumerate([n for n in graph.nodes if n.op == "placeholder"]):
        if node.users:
            node.target = f"input_{len(used)}"
            node.name = node.target
            used.append(i)
        else:
            graph.erase_node(node)
    return tuple(used)


def _lift_tensors(module: fx.GraphModule) -> list[Tensor]:
    """Tensors that the step closed over become inputs."""
    found = [node for node in module.graph.nodes if node.op == "get_attr"]
    for node in found:
        node.replace_all_uses_with(_new_input(module.graph, node.name))
        module.graph.erase_node(node)
    return [getattr(module, node.target) for node in found]


def _lift_numbers(graph: fx.Graph, device: torch.device) -> list[Tensor]:
    """Factors and summands that Python holds become inputs of no dimension."""
    lifted = []
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in ARITHMETIC:
            continue
        like = node.meta["val"].dtype
        dtype = like if like in (torch.float32, torch.float64) else torch.float32
        for place, argument in enumerate(node.args):
            if isinstance(argument, float):
                lifted.append(torch.tensor(argument, dtype=dtype, device=device))
                node.update_arg(place, _new_input(graph, f"number_{len(lifted)}"))
    return lifted


def _new_input(graph: fx.Graph, name: str) -> fx.Node:
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    with graph.inserting_after(last):
        return graph.placeholder(name)
