"""The gradient function of a stage: that of the network's loss, wrapped by the parts that change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor
from torch.func import grad_and_value, vmap

from idiolect.core.masked_mean import mean_over_rows
from idiolect.core.part import Batch, Forward, Loss, Out, Part, Structure, Task
from idiolect.core.stage import Stage
from idiolect.core.trees import Flats, Slot, pick, tree_leaves, with_leaves
from idiolect.errors import UserError

__all__ = [
    "Differentiate",
    "Gradient",
    "Objective",
    "bare_gradient",
    "functional_gradient",
    "join_trained",
    "split_trained",
    "wrapped_gradient",
]

Objective: TypeAlias = Callable[[Flats], tuple[Tensor, Flats]]  # params -> (value, buffers)
# (objective, params) -> (gradients, (value, buffers)): how an engine differentiates an objective
Differentiate: TypeAlias = Callable[[Objective, Flats], tuple[Flats, tuple[Tensor, Flats]]]
Ask: TypeAlias = Callable[..., Any]  # (part, hook, the arguments before the view) -> what the hook returns
Carries: TypeAlias = dict[str, Slot]  # by part
Graded: TypeAlias = tuple[Flats, Flats, Carries, Tensor]  # gradients, buffers, carries, loss
Gradient: TypeAlias = Callable[
    [Flats, Flats, tuple[Batch, ...], Carries], Graded
]  # params, buffers, batches, carries


def bare_gradient(
    forward: Forward, loss: Loss, stage: Stage, structure: Structure, differentiate: Differentiate
) -> Gradient:
    """Returns the gradient function of the loss on the first batch, for the tensors that the stage trains."""
    trained_units = {
        structure.unit_of[n] for n in structure.params if not stage.trainable or stage.trainable(n, structure)
    }
    mode = _modes(trained_units, structure)

    def gradient(params: Flats, buffers: Flats, batches: tuple[Batch, ...], carry: Carries) -> Graded:
        trained, fixed = split_trained(params, stage, structure)

        def objective(trained: Flats) -> tuple[Tensor, Flats]:
            whole = join_trained(trained, fixed, params)
            if stage.split == "none":
                return loss(whole, batches[0], _no_rows(batches[0].mask, structure)), buffers
            out, new = forward(whole, buffers, batches[0], mode)
            return loss(whole, batches[0], out), new

        grads, (value, new) = differentiate(objective, trained)
        return grads, new, carry, value

    return gradient


def _no_rows(like: Tensor, structure: Structure) -> Out:
    """Returns what a stage without data gets in place of the outputs of a network, which may not be there whole."""
    return Out(like.new_zeros(0, structure.n_features), like.new_zeros(0, structure.n_classes))


def functional_gradient(objective: Objective, params: Flats) -> tuple[Flats, tuple[Tensor, Flats]]:
    """Differentiates an objective by ``torch.func``, which can be vmapped."""
    form: Flats = {}

    def flat(leaves: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        nonlocal form
        value, form = objective(with_leaves(params, leaves))
        return value, tree_leaves(form)

    grads, (value, aux) = grad_and_value(flat, has_aux=True)(tree_leaves(params))
    return with_leaves(params, grads), (value, with_leaves(form, aux))


def reduced_gradient(
    forward: Forward, loss: Loss, stage: Stage, structure: Structure, part: Part, ask: Ask
) -> Gradient:
    """Returns the gradient function that ``part`` reduces from the gradients of the single examples of a batch."""
    of_batch = bare_gradient(forward, loss, stage, structure, functional_gradient)

    def gradient(params: Flats, buffers: Flats, batches: tuple[Batch, ...], carry: Carries) -> Graded:
        batch = batches[0]
        if found := [name for flat in buffers.values() for name in flat]:
            raise UserError(
                f"{part.name} needs the gradient of each example by itself, and the examples of a batch share "
                f"the running statistics {found[0]}; use a network and a method without running statistics"
            )

        def of_example(x: Tensor, y: Tensor, mask: Tensor, key: Tensor) -> tuple[Flats, Tensor]:
            alone = Batch(x[None], y[None], mask[None], key[None], batch.draws)
            grads, _, _, value = of_batch(params, buffers, (alone,), {})
            return grads, value

        grads, values = vmap(of_example)(batch.x, batch.y, batch.mask, batch.key)
        return ask(part, "reduce", grads, batch), buffers, carry, mean_over_rows(values, batch.mask)

    return gradient


def _modes(trained_units: set[int], structure: Structure) -> tuple[bool, ...]:
    """Returns for each unit whether it runs in training mode; a unit without parameters is as the one after it."""
    with_params = {structure.unit_of[name] for name in structure.params} | structure.frozen_units
    modes = [False] * structure.n_units
    after = bool(trained_units)
    for unit in reversed(range(structure.n_units)):
        modes[unit] = after = unit in trained_units if unit in with_params else after
    return tuple(modes)


def wrapped_gradient(
    stage: Stage, parts: tuple[Part, ...], task: Task, differentiate: Differentiate, ask: Ask
) -> Gradient:
    """Returns the gradient function of the method: forward pass, loss and gradient as the parts wrap them."""
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
        if part.reduce:
            function = reduced_gradient(forward, loss, stage, task.structure, part, ask)
    for part in parts:
        if part.gradient:
            function = with_own_carry(part, function, ask)
    return function


def with_own_carry(part: Part, inner: Gradient, ask: Ask) -> Gradient:
    """Wraps ``inner`` by the gradient hook of ``part``, which sees its own carry and no other part's."""

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
    """Splits every flat tree into the tensors that the stage trains and those that it leaves alone."""
    trainable = stage.trainable
    if trainable is None:
        return params, {}
    trained = {tree: pick(flat, lambda n: trainable(n, structure)) for tree, flat in params.items()}
    fixed = {tree: pick(flat, lambda n: not trainable(n, structure)) for tree, flat in params.items()}
    return trained, fixed


def join_trained(trained: Flats, fixed: Flats, order: Flats) -> Flats:
    """Joins what ``split_trained`` split, with names in the order of ``order``."""
    if not fixed:
        return trained
    return {
        t: {n: trained[t][n] if n in trained[t] else fixed[t][n] for n in flat} for t, flat in order.items()
    }
