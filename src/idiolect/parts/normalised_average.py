"""Normalised averaging (FedNova).

d_k = (theta_t - thetahat_k) / ||a_k||_1,   theta <- theta - tau_eff sum_k p_k d_k,   tau_eff = sum_k p_k ||a_k||_1
||a_k||_1 counts how far the local optimiser carries a constant gradient:
    v = s = 0;  every step: v <- rho v + 1 - eta mu s,  s <- s + v;   ||a_k||_1 = s
(rho momentum, mu proximal weight; tau_k for plain SGD)
Wang et al., NeurIPS 2020, https://arxiv.org/abs/2007.07481
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    CarryingGradient,
    Clock,
    Flat,
    Flats,
    GradientFunction,
    Initial,
    Loss,
    Message,
    Out,
    Part,
    Results,
    Scene,
    Slot,
    Structure,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import squared_distance, zeros_like
from idiolect.errors import UserError, refuse_outside
from idiolect.parts.average import average

__all__ = ["normalised_average"]

NAME = "normalised_average"


@keeps_options
def normalised_average(proximal_weight: float = 0.0, global_momentum: float = 0.0) -> Part:
    """Averages the clients' directions, so that one that makes more steps does not pull harder.

    Args:
        proximal_weight: mu >= 0 of a proximal term mu/2 ||w - theta_t||^2, which shortens steps.
        global_momentum: gmf in [0, 1] on the server's step.

    The normaliser counts steps of SGD at one rate, so that another optimiser and a schedule within a round are refused.

    Deviations: ||a_k||_1 is used in both places; the authors' code takes tau_eff from the step count when there
    is a proximal term.
    """
    refuse_outside("proximal_weight (mu)", proximal_weight, 0)
    refuse_outside("global_momentum (gmf)", global_momentum, 0, 1)

    def check(structure: Structure, scene: Scene) -> None:
        if not scene.uses_sgd or scene.has_local_schedule:
            changed = f"optimiser={scene.optimiser}" if not scene.uses_sgd else scene.local_schedule
            raise UserError(
                f"{NAME} counts steps of SGD at one rate and cannot weigh those of {changed}; "
                "set optimiser to sgd and local_schedule to constant"
            )

    def init_server(shared: Flat, initial: Initial) -> Flat:
        return zeros_like(shared) if global_momentum else {}

    def carry(params: Flats, view: View) -> Slot:
        zero = torch.zeros_like(view.facts.samples)
        return {"velocity": zero, "norm": zero}

    def gradient(inner: GradientFunction, view: View) -> CarryingGradient:
        shrink = view.clock.learning_rate * proximal_weight

        def counted(
            params: Flats, buffers: Flats, batches: tuple[Batch, ...], carry: Slot
        ) -> tuple[Flats, Flats, Slot]:
            grads, new = inner(params, buffers, batches)
            velocity = view.scene.momentum * carry["velocity"] + 1 - shrink * carry["norm"]
            return grads, new, {"velocity": velocity, "norm": carry["norm"] + velocity}

        return counted

    def loss(inner: Loss, view: View) -> Loss:
        if not proximal_weight:
            return inner

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            near = squared_distance(params["model"], view.origin.params) / 2
            return inner(params, batch, out) + proximal_weight * near

        return total

    def upload(results: Results, view: View) -> Message:
        trained, norm = results[UPLOAD].params["model"], results[UPLOAD].carry[NAME]["norm"]
        origin = view.origin.params
        direction = {name: (origin[name] - trained[name]) / norm.clamp(min=1e-12) for name in origin}
        return Message({"direction": direction, "norm": norm}, view.facts.weight)

    def merge(params: Flat, slot: Flat, mean: Slot, clock: Clock) -> tuple[Flat, Flat]:
        step = {name: mean["norm"] * d for name, d in mean.get("direction", {}).items()}
        if global_momentum:
            step = slot = {name: global_momentum * slot[name] + d for name, d in step.items()}
        return {**params, **{name: params[name] - d for name, d in step.items()}}, slot

    return average()._replace(
        name=NAME,
        init_server=init_server,
        check=check,
        loss=loss if proximal_weight else None,
        carry=carry,
        gradient=gradient,
        upload=upload,
        origin=None,
        merge=merge,
        roles=("server update", "gradient rule", "proximal term", "uploaded models"),
        gives_way=False,
    )
