"""Curvature: a quadratic penalty weighted by how much each parameter matters to the other clients (FedCurv).

I_k = mean squared gradient of the log-likelihood at thetahat_k over the local data (diagonal Fisher)
server   U = sum_j I_j,  V = sum_j I_j thetahat_j        over the last round's participants
local    CE + lambda sum_i [(U - U_k) w^2 - 2 (V - V_k) w]    its own share left out if it took part
Shoham et al. 2019, https://arxiv.org/abs/1910.07796
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Clock,
    Flat,
    Flats,
    Initial,
    Loss,
    Message,
    Out,
    Part,
    Plan,
    Results,
    Scene,
    Slot,
    Stage,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import tree_map, zeros_like
from idiolect.errors import refuse_outside
from idiolect.parts.squared_gradients import squared_gradients

__all__ = ["curvature"]

NAME = "curvature"
STAGE = "fisher"


@keeps_options
def curvature(weight: float = 0.1) -> Part:
    """Penalises moving the parameters to which the other clients' likelihoods are sensitive.

    Args:
        weight: lambda >= 0; plain steps are stable while learning rate * lambda * U stays below 1.

    Deviations: the Fisher diagonal is a mean over a client's samples, so that its scale does not grow with
    them.  No penalty on buffers.
    """
    refuse_outside("weight (lambda)", weight, 0)

    def init_server(shared: Flat, initial: Initial) -> Flats:
        return {"importance": zeros_like(shared), "weighted": zeros_like(shared)}

    def init_client(initial: Initial) -> Slot:
        never = torch.zeros_like(next(iter(initial.params.values())).sum()) - 2
        return {
            "importance": zeros_like(initial.params),
            "weighted": zeros_like(initial.params),
            "round": never,
        }

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        fisher = Stage(STAGE, NAME, measure=squared_gradients())
        return plan._replace(before=(*plan.before, fisher))

    def loss(inner: Loss, view: View) -> Loss:
        if not weight:
            return inner
        less = -(view.private["round"] == view.clock.round - 1).to(view.facts.samples)
        others = {
            key: {n: torch.addcmul(sent, less, view.private[key][n]) for n, sent in view.server[key].items()}
            for key in ("importance", "weighted")
        }

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            w, u, v = params["model"], others["importance"], others["weighted"]
            # u w^2 - 2 v w as -2 <w, v - u w / 2>: two passes over the parameters
            halves = {n: torch.addcmul(v[n], u[n], w[n], value=-0.5) for n in u}
            penalty = [-2 * torch.dot(w[n].flatten(), half.flatten()) for n, half in halves.items()]
            return inner(params, batch, out) + (weight * torch.stack(penalty).sum() if penalty else 0)

        return total

    def own(results: Results) -> Flats:
        measured, trained = results[STAGE].measured, results[UPLOAD].params["model"]
        importance = {n: total / measured["rows"].clamp(min=1) for n, total in measured["sum"].items()}
        return {"importance": importance, "weighted": {n: f * trained[n] for n, f in importance.items()}}

    def upload(results: Results, view: View) -> Message:
        return Message(own(results), torch.ones_like(view.facts.weight))

    def finish(results: Results, view: View) -> Slot:
        return {**own(results), "round": torch.full_like(view.private["round"], view.clock.round)}

    def merge(params: Flat, slot: Flats, mean: Flats, clock: Clock) -> tuple[Flat, Flats]:
        return params, tree_map(lambda leaf: leaf * clock.cohort_size, mean)

    return Part(
        NAME,
        init_server=init_server,
        init_client=init_client,
        stages=stages,
        loss=loss,
        upload=upload,
        finish=finish,
        merge=merge,
        broadcasts=True,
        mean_alone="has each client subtract its own share from the sum of all",
    )
