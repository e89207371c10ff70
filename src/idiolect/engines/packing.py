"""Two ways to run the same pure functions: one client bare, or a cohort under vmap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from idiolect.core import Batch, Context, Program, Stage, State, Tree
from idiolect.core.trees import stack, take_row, tree_leaves, tree_map
from idiolect.engines.workload import Workload
from idiolect.layers import BatchedLayers

__all__ = ["BATCHED", "BATCHED_LAYERS", "SINGLE", "Packing", "advance"]

Feed = Iterator[tuple[tuple[Batch, ...], Tensor | None]]


class Packing(NamedTuple):
    """How a group of clients becomes one computation.

    Args:
        pack, unpack: between a list of clients' trees and the tree that is computed on.
        lift: makes a function of (context, *trees) of one client run on the packed group.
        feed: the batches of a stage for the group, in the form that ``fold`` reads.
        fold: the state after all steps of a stage.
        differentiate: the way to take a gradient inside lifted functions.
    """

    pack: Callable[[list[Tree]], Tree]
    unpack: Callable[[Tree, int], list[Tree]]
    lift: Callable[[Callable[..., Any]], Callable[..., Any]]
    feed: Callable[[Workload, Program, Stage, list[int]], Any]
    fold: Callable[[Program, Stage, Context, State, Any], State]
    differentiate: Callable[..., Any]


def advance(program: Program, stage: Stage) -> Callable[..., State]:
    """One step of one client: (context, state, batches) and, where steps are padded, whether it is active."""

    def step(context: Context, state: State, batches: tuple[Batch, ...], *active: Tensor) -> State:
        still = active[0] if active else None
        if stage.measure is not None:
            return program.measure(stage, context, state, batches[0], still)
        return program.step(stage, context, state, batches, still)

    return step


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
    return grad_and_value(objective, has_aux=True)(params)


def _vmapped(function: Callable[..., Any]) -> Callable[..., Any]:
    def lifted(context: Context, *trees: Tree) -> Any:
        in_dims = (Context(None, 0, 0, 0, None), *(0 for _ in trees))  # type: ignore[arg-type]
        return vmap(function, in_dims=in_dims)(context, *trees)

    return lifted


def _vmapped_in_batched_layers(function: Callable[..., Any]) -> Callable[..., Any]:
    def lifted(*arguments: Any) -> Any:
        with BatchedLayers():
            return _vmapped(function)(*arguments)

    return lifted


def _folding(lift: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., State]:
    def fold(program: Program, stage: Stage, context: Context, state: State, feed: Feed) -> State:
        lifted = lift(advance(program, stage))
        for batches, active in feed:
            state = lifted(context, state, batches, *([active] if active is not None else []))
        return state

    return fold


SINGLE = Packing(
    pack=lambda trees: trees[0],
    unpack=lambda tree, count: [tree],
    lift=lambda function: function,
    feed=lambda work, program, stage, clients: work.single_feed(program, stage, clients[0]),
    fold=_folding(lambda function: function),
    differentiate=_autograd,
)

BATCHED = Packing(
    pack=stack,
    unpack=lambda tree, count: [tree_map(torch.clone, take_row(tree, row)) for row in range(count)],
    lift=_vmapped,
    feed=lambda work, program, stage, clients: work.cohort_feed(program, stage, clients),
    fold=_folding(_vmapped),
    differentiate=_functional,
)

BATCHED_LAYERS = BATCHED._replace(
    lift=_vmapped_in_batched_layers, fold=_folding(_vmapped_in_batched_layers)
)  # on a GPU, where PyTorch's own layers are slow under vmap
