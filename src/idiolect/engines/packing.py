"""Two ways to run the same pure functions: one client bare, or a cohort under vmap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from idiolect.core import Batch, Context, Program, Stage, State, Tree
from idiolect.core.trees import Rows, stack, tree_leaves, tree_map, with_leaves
from idiolect.engines.cohort.batched_layers import BatchedLayers
from idiolect.engines.cohort.batches import padded_feed
from idiolect.engines.numpy_trees import aligned
from idiolect.engines.workload import Workload

__all__ = ["BATCHED", "BATCHED_LAYERS", "SINGLE", "Feed", "Lift", "Packing", "advance", "hook_of"]

Feed = Iterator[tuple[tuple[Batch, ...], Tensor | None]]
Lift = Callable[[Callable[..., Any]], Callable[..., Any]]


class Packing(NamedTuple):
    """How a group of clients becomes one computation.

    Args:
        pack, unpack: between clients' trees and the tree that is computed on.
        lift: makes a function of (context, *trees) of one client run on the packed group.
        feed: the batches of a stage for the group, in the form that ``fold`` reads.
        fold: the state after all steps of a stage.
        call: a hook of the program (``begin`` of a stage, ``upload``, ``finish``, ...) on the group.
        differentiate: the way to take a gradient inside lifted functions.
    """

    pack: Callable[[Sequence[Tree]], Tree]
    unpack: Callable[[Tree, int], Sequence[Tree]]
    lift: Lift
    feed: Callable[[Workload, Program, Stage, list[int]], Any]
    fold: Callable[[Program, Stage, Context, State, Any], State]
    call: Callable[..., Any]
    differentiate: Callable[..., Any]


def advance(program: Program, stage: Stage) -> Callable[..., State]:
    """One step of one client: (context, state, batches) and, where steps are padded, whether it is active."""

    def step(context: Context, state: State, batches: tuple[Batch, ...], *active: Tensor) -> State:
        still = active[0] if active else None
        if stage.measure is not None:
            return program.measure(stage, context, state, batches[0], still)
        return program.step(stage, context, state, batches, still)

    return step


def hook_of(program: Program, name: str, stage: Stage | None) -> Callable[..., Any]:
    """A hook of the program as a function of one client's (context, *trees)."""
    hook = getattr(program, name)
    if stage is None:
        return hook  # type: ignore[no-any-return]
    return lambda context, *previous: hook(stage, context, previous[0] if previous else None)


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


def _vmapped_in_batched_layers(function: Callable[..., Any]) -> Callable[..., Any]:
    def lifted(*arguments: Any) -> Any:
        with BatchedLayers():
            return _vmapped(function)(*arguments)

    return lifted


def _packing(lift: Lift, **others: Any) -> Packing:
    """``fold`` and ``call`` made of ``lift``."""

    def fold(program: Program, stage: Stage, context: Context, state: State, feed: Feed) -> State:
        lifted = lift(advance(program, stage))
        for batches, active in feed:
            state = lifted(context, state, batches, *([active] if active is not None else []))
        return state

    def call(program: Program, name: str, stage: Stage | None, context: Context, *trees: Tree) -> Any:
        return lift(hook_of(program, name, stage))(context, *trees)

    return Packing(lift=lift, fold=fold, call=call, **others)


SINGLE = _packing(
    lambda function: function,
    pack=lambda trees: tree_map(aligned, trees[0]),  # it may be a row of many
    unpack=lambda tree, count: [tree],
    feed=lambda work, program, stage, clients: work.single_feed(program, stage, clients[0]),
    differentiate=_autograd,
)

BATCHED = _packing(
    _vmapped,
    pack=stack,
    unpack=Rows,
    feed=padded_feed,
    differentiate=_functional,
)

BATCHED_LAYERS = _packing(
    _vmapped_in_batched_layers,
    pack=stack,
    unpack=Rows,
    feed=BATCHED.feed,
    differentiate=_functional,
)  # on a GPU, where PyTorch's own layers are slow under vmap
