"""Dynamic regularisation (FedDyn).

local   F_k(w) - <g_k, w> + alpha/2 ||w - theta_t||^2;    g_k <- g_k - alpha (thetahat_k - theta_t)
server  h <- h - alpha/K sum_{k in S} (thetahat_k - theta_t);   theta <- mean_{k in S} thetahat_k - h/alpha
Acar et al., ICLR 2021, algorithm 1, https://arxiv.org/abs/2111.04263
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import UPLOAD, Batch, Clock, Flat, Flats, Initial, Loss, Message, Out, Part, Results, View
from idiolect.core.part import keeps_options
from idiolect.core.trees import inner_product, squared_distance, zeros_like
from idiolect.errors import refuse_outside
from idiolect.parts.average import average

__all__ = ["dynamic_regulariser"]


@keeps_options
def dynamic_regulariser(alpha: float = 0.01) -> Part:
    """A dual variable on each client makes local optima agree with the shared one.

    Args:
        alpha: > 0; the paper searches 0.1, 0.01, 0.001.  There is no alpha that gives FedAvg.

    Deviations: none.  The mean over the cohort is uniform, as h counts clients; buffers have no dual.
    """
    refuse_outside("alpha", alpha, 1e-12)

    def init_server(shared: Flat, initial: Initial) -> Flat:
        return zeros_like(shared)

    def init_client(initial: Initial) -> Flat:
        return zeros_like(initial.params)

    def loss(inner: Loss, view: View) -> Loss:
        dual = {name: view.private[name] for name in view.origin.params}

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            w = params["model"]
            near = alpha / 2 * squared_distance(w, view.origin.params)
            return inner(params, batch, out) - inner_product(dual, w) + near

        return total

    def upload(results: Results, view: View) -> Message:
        trained = results[UPLOAD].params["model"]
        return Message(
            {name: trained[name] for name in view.origin.params}, torch.ones_like(view.facts.weight)
        )

    def finish(results: Results, view: View) -> Flat:
        trained, origin = results[UPLOAD].params["model"], view.origin.params
        moved = {name: view.private[name] - alpha * (trained[name] - origin[name]) for name in origin}
        return {**view.private, **moved}

    def merge(params: Flat, slot: Flat, mean: Flat, clock: Clock) -> tuple[Flat, Flat]:
        rate = alpha * clock.cohort_size / clock.population
        h = {name: slot[name] - rate * (mean[name] - params[name]) for name in slot}
        return {**params, **{name: mean[name] - h[name] / alpha for name in h}}, h

    return average()._replace(
        name="dynamic_regulariser",
        init_server=init_server,
        init_client=init_client,
        loss=loss,
        upload=upload,
        finish=finish,
        merge=merge,
        gives_way=False,
    )
