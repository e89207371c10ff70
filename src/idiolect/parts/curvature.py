"""Curvature: a quadratic penalty weighted by what matters to the other clients (FedCurv).

I_k = mean squared gradient of the log-likelihood at thetahat_k over the local data (diagonal Fisher)
server   U = sum_j I_j,  V = sum_j I_j thetahat_j        over the last round's participants
local    CE + lambda sum_i [(U - U_k) w^2 - 2 (V - V_k) w]    its own share left out if it took part
Shoham et al. 2019, https://arxiv.org/abs/1910.07796
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import grad, vmap

from idiolect.core import (
    UPLOAD,
    Batch,
    Clock,
    Flat,
    Initial,
    Loss,
    Measure,
    Message,
    Model,
    Out,
    Part,
    Plan,
    Results,
    Scene,
    Stage,
    Tree,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import tree_map, zeros_like
from idiolect.errors import refuse_outside

__all__ = ["curvature"]

NAME = "curvature"
STAGE = "fisher"
ROWS_AT_ONCE = 32


def squared_gradients() -> Measure:
    """Sum over the examples of the squared gradient of -log p(y | x), and their number."""

    def init(model: Model, view: View) -> Tree:
        return {"sum": zeros_like(model.params), "rows": torch.zeros_like(view.facts.samples)}

    def add(sums: Tree, model: Model, batch: Batch, view: View) -> Tree:
        def negative_log_likelihood(params: Flat, x: Tensor, y: Tensor, key: Tensor) -> Tensor:
            one = Batch(x[None], y[None], torch.ones_like(batch.mask[:1]), key[None], {})
            out, _ = view.task.forward(params, model.buffers, one, False)
            return view.task.criterion({"model": params}, one, out)

        each = vmap(grad(negative_log_likelihood), in_dims=(None, 0, 0, 0), chunk_size=ROWS_AT_ONCE)(
            model.params, batch.x, batch.y, batch.key
        )
        total = {n: sums["sum"][n] + torch.tensordot(batch.mask, g**2, 1) for n, g in each.items()}
        return {"sum": total, "rows": sums["rows"] + batch.mask.sum()}

    return Measure(init, add)


@keeps_options
def curvature(weight: float = 0.01) -> Part:
    """Keeps each parameter where the other clients' likelihoods are sensitive to it.

    Args:
        weight: lambda >= 0.

    Deviations: the Fisher diagonal is a mean over a client's samples, so that its scale does not grow with
    them.  No penalty on buffers.
    """
    refuse_outside("weight (lambda)", weight, 0)

    def init_server(shared: Flat, initial: Initial) -> Tree:
        return {"importance": zeros_like(shared), "weighted": zeros_like(shared)}

    def init_client(initial: Initial) -> Tree:
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
        mine = (view.private["round"] == view.clock.round - 1).to(view.facts.samples)
        others = {
            key: {n: view.server[key][n] - mine * view.private[key][n] for n in view.server[key]}
            for key in ("importance", "weighted")
        }

        def total(params: Tree, batch: Batch, out: Out) -> Tensor:
            w, u, v = params["model"], others["importance"], others["weighted"]
            penalty = [(u[name] * w[name] ** 2 - 2 * v[name] * w[name]).sum() for name in u]
            return inner(params, batch, out) + (weight * torch.stack(penalty).sum() if penalty else 0)

        return total

    def own(results: Results) -> Tree:
        measured, trained = results[STAGE].measured, results[UPLOAD].params["model"]
        importance = {n: total / measured["rows"].clamp(min=1) for n, total in measured["sum"].items()}
        return {"importance": importance, "weighted": {n: f * trained[n] for n, f in importance.items()}}

    def upload(results: Results, view: View) -> Message:
        return Message(own(results), torch.ones_like(view.facts.weight))

    def finish(results: Results, view: View) -> Tree:
        return {**own(results), "round": torch.full_like(view.private["round"], view.clock.round)}

    def merge(params: Flat, slot: Tree, mean: Tree, clock: Clock) -> tuple[Flat, Tree]:
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
    )
