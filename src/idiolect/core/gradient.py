"""The gradient function of a stage: bare, then wrapped by the parts that have a say in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor

from idiolect.core.part import Batch, Forward, Loss, Part, Structure, Task
from idiolect.core.stage import Stage
from idiolect.core.trees import Flats, Slot, pick

__all__ = ["Differentiate", "Gradient", "bare_gradient", "join_trained", "split_trained", "wrapped_gradient"]

# (objective, params) -> (gradients, (value, what else the objective returns)): an engine's way to differentiate
Objective: TypeAlias = Callable[[Flats], tuple[Tensor, Flats]]
Differentiate: TypeAlias = Callable[[Objective, Flats], tuple[Flats, tuple[Tensor, Flats]]]
# (part, hook, arguments before the view) -> what the hook returns
Ask: TypeAlias = Callable[..., Any]
# (params, buffers, batches, carry) -> (gradients, buffers, carry, loss)
Carries: TypeAlias = dict[str, Slot]
Graded: TypeAlias = tuple[Flats, Flats, Carries, Tensor]
Gradient: TypeAlias = Callable[[Flats, Flats, tuple[Batch, ...], Carries], Graded]


def bare_gradient(
    forward: Forward, loss: Loss, stage: Stage, structure: Structure, differentiate: Differentiate
) -> Gradient:
    """The gradient of the loss of the first batch with respect to what the stage trains."""
    trained_units = {
        structure.unit_of[n] for n in structure.params if not stage.trainable or stage.trainable(n, structure)
    }
    mode = tuple(unit in trained_units for unit in range(structure.n_units))

    def gradient(params: Flats, buffers: Flats, batches: tuple[Batch, ...], carry: Carries) -> Graded:
        trained, fixed = split_trained(params, stage, structure)

        def objective(trained: Flats) -> tuple[Tensor, Flats]:
            whole = join_trained(trained, fixed, params)
            out, new = forward(whole, buffers, batches[0], mode)
            return loss(whole, batches[0], out), new

        grads, (value, new) = differentiate(objective, trained)
        return grads, new, carry, value

    return gradient


def wrapped_gradient(
    stage: Stage, parts: tuple[Part, ...], task: Task, differentiate: Differentiate, ask: Ask
) -> Gradient:
    """The gradient of what the parts make of the network and its loss, by the rules that they set."""
    forward, loss = task.bare, task.criterion
    for part in parts:
        if part.criterion:
            loss = ask(part, "criterion", loss)
    for part in parts:
        if part.forward:
            forward = ask(part, "forward", forward)
        if part.loss:
            loss = ask(part, "loss", loss)
    function = bare_gradient(forward, loss, stage, task.structure, differentiate)
    for part in parts:
        if part.gradient:
            function = with_own_carry(part, function, ask)
    return function


def with_own_carry(part: Part, inner: Gradient, ask: Ask) -> Gradient:
    """``inner`` wrapped by ``part``, which sees its own carry; the others' pass through the calls it makes."""

    def gradient(params: Flats, buffers: Flats, batches: tuple[Batch, ...], carry: Carries) -> Graded:
        rest = carry
        value: Tensor

        def plain(params: Flats, buffers: Flats, batches: tuple[Batch, ...]) -> tuple[Flats, Flats]:
            nonlocal rest, value
            grads, new, rest, value = inner(params, buffers, batches, rest)
            return grads, new

        wrapped = ask(part, "gradient", plain)
        grads, new, own = wrapped(params, buffers, batches, carry[part.name])
        return grads, new, {**rest, part.name: own}, value

    return gradient


def split_trained(params: Flats, stage: Stage, structure: Structure) -> tuple[Flats, Flats]:
    """(trained, fixed) tensors of every tree."""
    trainable = stage.trainable
    if trainable is None:
        return params, {}
    trained = {tree: pick(flat, lambda n: trainable(n, structure)) for tree, flat in params.items()}
    fixed = {tree: pick(flat, lambda n: not trainable(n, structure)) for tree, flat in params.items()}
    return trained, fixed


def join_trained(trained: Flats, fixed: Flats, order: Flats) -> Flats:
    """Both again as one, names in the order of the trees they came from."""
    if not fixed:
        return trained
    return {
        t: {n: trained[t][n] if n in trained[t] else fixed[t][n] for n in flat} for t, flat in order.items()
    }
