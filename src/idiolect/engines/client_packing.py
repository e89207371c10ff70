"""Packing of clients into one computation: a single client as it is, or a cohort stacked and run under vmap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from idiolect.core import Batch, Context, Flats, Program, ServerState, Stage, State, Tree
from idiolect.core.gradient import Differentiate, Objective, functional_gradient
from idiolect.core.trees import Rows, stack, tree_leaves, tree_map, with_leaves
from idiolect.engines.cohort.batched_layer_dispatch import BatchedLayers
from idiolect.engines.cohort.batches import padded_feed
from idiolect.engines.device_data import Workload
from idiolect.engines.numpy_trees import aligned

__all__ = ["BATCHED", "BATCHED_LAYERS", "SINGLE", "Feed", "Lift", "Packing", "advance", "hook_of"]

Feed = Iterator[tuple[tuple[Batch, ...], Tensor | None]]
Lift = Callable[[Callable[..., Any]], Callable[..., Any]]
NO_SERVER: ServerState = {"params": {}, "buffers": {}, "slots": {}}  # a server's state without tensors


class Packing(NamedTuple):
    """How a group of clients becomes one computation.

    Args:
        pack, unpack: convert between clients' trees and the tree that is computed on.
        lift: makes a function of one client's (context, *trees) run on the packed group.
        feed: returns the batches of a stage for the group, in the form that ``fold`` reads.
        fold: returns the state after all steps of a stage.
        call: runs a hook of the program (``begin`` of a stage, ``upload``, ``finish``, ...) on the group.
        differentiate: takes a gradient inside lifted functions.
    """

    pack: Callable[[Sequence[Any]], Any]
    unpack: Callable[[Any, int], Sequence[Any]]
    lift: Lift
    feed: Callable[[Workload, Program, Stage, list[int]], Any]
    fold: Callable[[Program, Stage, Context, State, Any], State]
    call: Callable[..., Any]
    differentiate: Differentiate


def advance(program: Program, stage: Stage) -> Callable[..., State]:
    """Returns one step of one client: a function of (context, state, batches).

    With padding it takes a fourth argument, whether the client is active.
    """

    def step(context: Context, state: State, batches: tuple[Batch, ...], *active: Tensor) -> State:
        still = active[0] if active else None
        if stage.measure is not None:
            return program.measure(stage, context, state, batches[0], still)
        return program.step(stage, context, state, batches, still)

    return step


def hook_of(program: Program, name: str, stage: Stage | None) -> Callable[..., Any]:
    """Returns a hook of the program as a function of one client's (context, *trees)."""
    hook: Callable[..., Any] = getattr(program, name)
    if stage is None:
        return hook
    return lambda context, *previous: hook(stage, context, previous[0] if previous else None)


def _autograd(objective: Objective, params: Flats) -> tuple[Flats, tuple[Tensor, Flats]]:
    """Takes the gradient by reverse mode, on detached leaves; a tensor without influence gets zero."""
    leaves = tree_map(lambda p: p.detach().requires_grad_(), params)
    with torch.enable_grad():
        value, aux = objective(leaves)
        flat = tree_leaves(leaves)
        found = (
            torch.autograd.grad(value, flat, allow_unused=True) if value.requires_grad else [None] * len(flat)
        )
    grads = iter([torch.zeros_like(p) if g is None else g for g, p in zip(found, flat, strict=True)])
    return tree_map(lambda _: next(grads), leaves), (value.detach(), tree_map(torch.detach, aux))


def _vmapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Runs ``function`` for all clients at once; they share the server's state, all else has a row for each client.

    vmap gets plain lists of tensors, because it would spend more time on whole trees than small networks take for a
    step.
    """

    def lifted(context: Context, *trees: Tree) -> Any:
        server = context.server
        form: Any = None
        given: tuple[Any, ...] = (context._replace(server=NO_SERVER), *trees)

        def flat(*leaves: Tensor) -> tuple[Tensor, ...]:
            nonlocal form
            own, *rest = with_leaves(given, leaves)
            form = function(own._replace(server=server), *rest)
            return tuple(tree_leaves(form))

        found = vmap(flat)(*tree_leaves(given))
        return with_leaves(form, found)

    return lifted


def _vmapped_in_batched_layers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Runs ``function`` for all clients at once, with layers in the forms that batch over clients."""

    def lifted(*arguments: Any) -> Any:
        with BatchedLayers():
            return _vmapped(function)(*arguments)

    return lifted


def _packing(lift: Lift, **others: Any) -> Packing:
    """Returns a packing whose ``fold`` and ``call`` are made of ``lift``."""

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
    pack=lambda trees: tree_map(aligned, trees[0]),  # the tree may be a row of a stack
    unpack=lambda tree, count: [tree],
    feed=lambda work, program, stage, clients: work.single_feed(program, stage, clients[0]),
    differentiate=_autograd,
)

BATCHED = _packing(
    _vmapped,
    pack=stack,
    unpack=Rows,
    feed=padded_feed,
    differentiate=functional_gradient,
)

BATCHED_LAYERS = _packing(
    _vmapped_in_batched_layers,
    pack=stack,
    unpack=Rows,
    feed=BATCHED.feed,
    differentiate=functional_gradient,
)  # on a GPU, where PyTorch's own layers are slow under vmap
