"""Two ways to run the same pure functions: one client bare, or a cohort under vmap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from idiolect.core import Batch, Context, Program, Stage, Tree
from idiolect.core.trees import stack, take_row, tree_leaves, tree_map, with_leaves
from idiolect.engines.workload import Workload

__all__ = ["BATCHED", "SINGLE", "Packing"]

Feed = Iterator[tuple[tuple[Batch, ...], Tensor | None]]


class Packing(NamedTuple):
    """How a group of clients becomes one computation.

    Args:
        pack, unpack: between a list of clients' trees and the tree that is computed on.
        lift: makes a function of (context, *trees) of one client run on the packed group.
        feed: the batches of a stage for the group.
        differentiate: the way to take a gradient inside lifted functions.
    """

    pack: Callable[[list[Tree]], Tree]
    unpack: Callable[[Tree, int], list[Tree]]
    lift: Callable[[Callable[..., Any]], Callable[..., Any]]
    feed: Callable[[Workload, Program, Stage, list[int]], Feed]
    differentiate: Callable[..., Any]


def _autograd(
    objective: Callable[[Tree], tuple[Tensor, Tree]], params: Tree
) -> tuple[Tree, tuple[Tensor, Tree]]:
    """The gradient by reverse mode on leaves of its own; a tensor without influence gets zero."""
    leaves = tree_map(lambda p: p.detach().requires_grad_(), params)
    with torch.enable_grad():
        value, aux = objective(leaves)
        flat = tree_leaves(leaves)
        found = (
            torch.autograd.grad(value, flat, allow_unused=True) if value.requires_grad else [None] * len(flat)
        )
    grads = iter([torch.zeros_like(p) if g is None else g for g, p in zip(found, flat, strict=True)])
    return tree_map(lambda _: next(grads), leaves), (value.detach(), tree_map(torch.detach, aux))


def _functional(
    objective: Callable[[Tree], tuple[Tensor, Tree]], params: Tree
) -> tuple[Tree, tuple[Tensor, Tree]]:
    form: Tree = None

    def flat(leaves: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        nonlocal form
        value, form = objective(with_leaves(params, leaves))
        return value, tree_leaves(form)

    grads, (value, aux) = grad_and_value(flat, has_aux=True)(tree_leaves(params))
    return with_leaves(params, grads), (value, with_leaves(form, aux))


def _vmapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of every client at once; the server's state is the same for all, the rest has a row for each.

    vmap gets plain lists of tensors: with whole trees it would spend more time on them than small networks on
    a step.
    """

    def lifted(context: Context, *trees: Tree) -> Any:
        server, form = context.server, None
        given = (context._replace(server={}), *trees)

        def flat(*leaves: Tensor) -> tuple[Tensor, ...]:
            nonlocal form
            own, *rest = with_leaves(given, leaves)
            form = function(own._replace(server=server), *rest)
            return tuple(tree_leaves(form))

        found = vmap(flat)(*tree_leaves(given))
        return with_leaves(form, found)

    return lifted


SINGLE = Packing(
    pack=lambda trees: trees[0],
    unpack=lambda tree, count: [tree],
    lift=lambda function: function,
    feed=lambda work, program, stage, clients: work.single_feed(program, stage, clients[0]),
    differentiate=_autograd,
)

BATCHED = Packing(
    pack=stack,
    unpack=lambda tree, count: [tree_map(torch.clone, take_row(tree, row)) for row in range(count)],
    lift=_vmapped,
    feed=lambda work, program, stage, clients: work.cohort_feed(program, stage, clients),
    differentiate=_functional,
)
