"""Attentive mixture: the server pulls each client's model towards models that are like it (FedAMP).

u_i = (1 - sum_{j != i} xi_ij) w_i + sum_{j != i} xi_ij w_j,      xi_ij = alpha A'(||w_i - w_j||^2)
A(x) = 1 - exp(-x / sigma),   A'(x) = exp(-x / sigma) / sigma
Huang et al., AAAI 2021, algorithm 1, https://arxiv.org/abs/2007.03797
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from idiolect.core import (
    UPLOAD,
    Flat,
    Flats,
    Initial,
    Model,
    Part,
    Predictor,
    Results,
    ServerView,
    Slot,
    Uploaded,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside
from idiolect.parts.average import average
from idiolect.parts.model_vectors import as_models, as_vectors, squared_distances

__all__ = ["attentive_mixture"]


@keeps_options
def attentive_mixture(alpha: float = 1.0, sigma: float = 10.0) -> Part:
    """Sends each client its mixture u_i in place of the shared model; it trains its own model w_i on from where it was.

    A proximal term of the weight lambda / alpha keeps w_i near u_i, which is the received model.

    Args:
        alpha: alpha_k > 0, the length of the server's step; 0 leaves every client with its own model.
        sigma: > 0, how far models may be apart to attract each other.

    Deviations: the shares xi_ij of others, which a small alpha keeps below 1 in sum, are scaled down to a sum of 1
    where they exceed it, so that u_i always lies among the models.  Where only some clients take part in a round, the
    last upload of every other client counts; the paper's all take part.  A client not heard from has the initial
    model.  The server's shared model is the mean of the uploads; no client trains from it.  Running statistics are
    shared as the setting ``buffers`` says.
    """
    refuse_outside("alpha (alpha_k)", alpha, 0)
    refuse_outside("sigma", sigma, 1e-12)
    plain = average()

    def init_client(initial: Initial) -> Flat:
        return dict(initial.params)

    def init_kept(initial: Initial, population: int) -> Slot:
        return {"model": dict(initial.params)}

    def keep(uploaded: Uploaded, view: ServerView) -> tuple[Slot, Slot]:
        return {"model": uploaded.value}, view.slot

    def personal_download(clients: Sequence[int], view: ServerView) -> Slot:
        own = as_vectors(view.kept.rows(clients)["model"])  # [C, P]
        numbers = torch.tensor(clients, device=own.device)
        total, pulled = own.new_zeros(len(own)), torch.zeros_like(own)
        for others, rows in view.kept.blocks():
            models = as_vectors(rows["model"])  # [B, P]
            share = alpha / sigma * torch.exp(-squared_distances(own, models) / sigma)  # xi, [C, B]
            share = share * (numbers[:, None] != torch.tensor(others, device=own.device))
            total, pulled = total + share.sum(1), pulled + share @ models
        scale = 1 / total.clamp(min=1)
        mixture = (1 - scale * total)[:, None] * own + scale[:, None] * pulled
        return {"params": as_models(mixture, view.shared.params)}

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        return {**params, "model": view.private}, buffers

    def finish(results: Results, view: View) -> Flat:
        trained = results[UPLOAD].params["model"]
        return {name: trained[name] for name in view.private}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        assert plain.predictors is not None
        own = view.current.params if results else view.private
        found: dict[str, Predictor] = plain.predictors(view, results)
        return {**found, "composed": Predictor.of(Model(own, view.current.buffers))}

    return plain._replace(
        name="attentive_mixture",
        init_client=init_client,
        init_kept=init_kept,
        keep=keep,
        personal_download=personal_download,
        start=start,
        finish=finish,
        predictors=predictors,
        needs_whole=True,
        roles=("server update", "composed predictor"),
        headline="composed",
        gives_way=False,
    )
