"""Control variates (SCAFFOLD).

y <- y - eta (g - c_k + c);   c_k' = mean raw gradient, or c_k - c + (theta_t - y)/(s eta)    option II
c <- c + r mean_k(c_k' - c_k),  r = |S|/K
Karimireddy et al., ICML 2020, algorithm 1, https://arxiv.org/abs/1910.06378
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from idiolect.core import (
    UPLOAD,
    Batch,
    CarryingGradient,
    Clock,
    Flat,
    Flats,
    GradientFunction,
    Initial,
    Message,
    Part,
    Plan,
    Results,
    Scene,
    Slot,
    Structure,
    View,
    sgd,
)
from idiolect.core.optimiser import scale_without_momentum
from idiolect.core.part import keeps_options
from idiolect.core.trees import zeros_like
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice

__all__ = ["control_variates"]

NAME = "control_variates"
Corrected = tuple[Flats, Flats, Slot]  # gradients, buffers, carry


def mean_gradient(results: Results, view: View, lr_scale: float) -> Flat:
    """The mean of the raw minibatch gradients of the main stage."""
    carry = results[UPLOAD].carry[NAME]
    steps = carry["steps"]
    return {
        name: torch.where(steps > 0, total / steps.clamp(min=1), view.private[name])
        for name, total in carry["sum"].items()
    }


def option_two(results: Results, view: View, lr_scale: float) -> Flat:
    """c_k - c + (theta_t - y)/(s eta): the mean raw gradient as plain SGD reveals it."""
    trained = results[UPLOAD].params["model"]
    steps = results[UPLOAD].carry[NAME]["steps"]
    scale = steps.clamp(min=1) * view.clock.learning_rate * lr_scale
    moved = {name: (view.origin.params[name] - trained[name]) / scale for name in view.server}
    return {
        name: view.private[name] + torch.where(steps > 0, moved[name] - view.server[name], 0)
        for name in view.server
    }


CONTROL_RATES: dict[str, Callable[[Clock], float]] = {
    "population": lambda clock: clock.cohort_size / clock.population,
    "cohort": lambda clock: 1.0,
}
CONTROLS: dict[str, Callable[[Results, View, float], Flat]] = {
    "mean_gradient": mean_gradient,
    "option_two": option_two,
}


@keeps_options
def control_variates(
    control: str = "mean_gradient",
    momentum: float = 0.0,
    lr_scale: float | None = None,
    clip_norm: float | None = 10.0,
    control_rate: str = "population",
) -> Part:
    """Corrects every local gradient by the difference between the server's and the client's control.

    Args:
        control: ``mean_gradient``, or the paper's ``option_two``, which holds for plain SGD alone and is refused
            with momentum, weight decay or clipping.
        momentum: of the corrected local SGD, in [0, 1]; 0 in the paper, whatever the scene says.
        lr_scale: eta_l as a multiple of the scene's learning rate.  None makes up for momentum that the scene has and
            these steps lack, by ((1 - own momentum) / (1 - scene's))^(1/4): 1.8 for 0 and 0.9, and 1 where both agree.
            Longer steps, such as the square root gives, were less accurate on the demo scene.  With Adam in the scene
            it must be given, since Adam's rates say nothing about plain steps.
        clip_norm: > 0, the largest norm of a corrected gradient; None is the paper's.  Controls of clients that were
            not selected for long point the wrong way, and what they do to the model makes the next controls larger:
            without a bound one of three runs of the demo scene diverged even with lr_scale=1.
        control_rate: r, by which the server's control follows the mean change of the cohort's controls: ``population``
            is |S|/K, so that c is the mean of all clients' controls; ``cohort`` is 1, as in the code of MAP's authors,
            which follows the latest cohort and is no such mean unless all clients train in every round.

    Deviations: length and clipping of the steps, unless ``lr_scale=1`` and ``clip_norm=None``.  The two controls are
    the same number for plain SGD; the mean gradient stays right under
    momentum, clipping and schedules.  Buffers have no control.  The mean of the controls is uniform, as c counts
    clients: with ``weighting=samples`` the models are averaged by samples and the controls are not.
    """
    refuse_unknown_choice("control", control, CONTROLS)
    refuse_unknown_choice("control_rate", control_rate, CONTROL_RATES)
    refuse_outside("momentum", momentum, 0, 1)
    if lr_scale is not None:
        refuse_outside("lr_scale", lr_scale, 0)
    if clip_norm is not None:
        refuse_outside("clip_norm", clip_norm, 1e-9)

    def bound(scene: Scene) -> float | None:
        return min((norm for norm in (clip_norm, scene.clip_norm) if norm is not None), default=None)

    def step_scale(scene: Scene) -> float:
        return math.sqrt(scale_without_momentum(scene.momentum, momentum)) if lr_scale is None else lr_scale

    def check(structure: Structure, scene: Scene) -> None:
        if not scene.uses_sgd and lr_scale is None:
            raise UserError(
                f"{NAME} makes plain steps, about whose length a learning rate for {scene.optimiser} says nothing; "
                "set optimiser to sgd, or lr_scale"
            )
        if control == "option_two" and scene.has_local_schedule:
            raise UserError("control=option_two holds for steps of one rate; set local_schedule to constant")
        altered = momentum > 0 or scene.weight_decay > 0 or bound(scene) is not None
        if control == "option_two" and altered:
            raise UserError(
                "control=option_two holds for plain SGD; set momentum and weight_decay to 0, clip_norm to None"
            )
        if control == "option_two" and scene.learning_rate * step_scale(scene) == 0:
            raise UserError("control=option_two divides by the learning rate, which must be above 0")

    def init_server(shared: Flat, initial: Initial) -> Flat:
        return zeros_like(shared)

    def init_client(initial: Initial) -> Flat:
        return zeros_like(initial.params)

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        plain = sgd(momentum, scene.weight_decay, bound(scene))
        scale = step_scale(scene)
        before = tuple(replace(s, optimiser=plain, lr_scale=s.lr_scale * scale) for s in plan.before)
        return plan._replace(before=before)

    def carry(params: Flats, view: View) -> Slot:
        return {"sum": zeros_like(view.server), "steps": torch.zeros_like(view.facts.samples)}

    def gradient(inner: GradientFunction, view: View) -> CarryingGradient:
        def corrected(params: Flats, buffers: Flats, batches: tuple[Batch, ...], carry: Slot) -> Corrected:
            grads, new = inner(params, buffers, batches)
            raw = grads["model"]
            shared = [name for name in raw if name in view.server]
            total = {**carry["sum"], **{name: carry["sum"][name] + raw[name] for name in shared}}
            better = {name: raw[name] + view.server[name] - view.private[name] for name in shared}
            return {**grads, "model": {**raw, **better}}, new, {"sum": total, "steps": carry["steps"] + 1}

        return corrected

    def upload(results: Results, view: View) -> Message:
        new = CONTROLS[control](results, view, step_scale(view.scene))
        change = {name: new[name] - view.private[name] for name in view.server}
        return Message(change, torch.ones_like(view.facts.weight))

    def finish(results: Results, view: View) -> Flat:
        return {**view.private, **CONTROLS[control](results, view, step_scale(view.scene))}

    def merge(params: Flat, slot: Flat, mean: Flat, clock: Clock) -> tuple[Flat, Flat]:
        rate = CONTROL_RATES[control_rate](clock)
        return params, {name: slot[name] + rate * mean[name] for name in slot}

    clipped = "" if clip_norm is None else f", corrected gradients clipped at {clip_norm:g}"
    longer = "((1 - this) / (1 - the scene's))^(1/4) times" if lr_scale is None else f"{lr_scale:g} times"
    return Part(
        NAME,
        init_server=init_server,
        init_client=init_client,
        check=check,
        stages=stages,
        carry=carry,
        gradient=gradient,
        upload=upload,
        finish=finish,
        merge=merge,
        broadcasts=True,
        roles=("gradient rule",),
        overrides=(
            f"local SGD of momentum {momentum:g} before the upload, steps {longer} the scene's{clipped}",
        ),
    )
