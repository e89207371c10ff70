"""Representation bias: a private vector takes up what is peculiar to a client in its mean feature (FedDBE).

z = f(x) + b_k,  logits = head(z)                     b_k private, trained with the network; 0 at first
L = CE + kappa/2 mean_dim (m - mbar)^2                m <- (1 - mu) m + mu mean_batch f(x), 0 at the start of a round
mbar = sum_k p_k m_k over the clients of the first round, which train without b_k and without the second term
Zhang, Hua, Cao, Wang, Song, Xue, Ma, Guan, NeurIPS 2023, https://arxiv.org/abs/2311.14975
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
    Forward,
    Initial,
    Loss,
    Message,
    Mode,
    Out,
    Part,
    Predictor,
    Results,
    Slot,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import where
from idiolect.errors import refuse_outside

__all__ = ["representation_bias"]

NAME = "representation_bias"


def mean_feature(features: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean [d] of the features [B, d] of real rows."""
    return (features * mask[:, None]).sum(0) / mask.sum().clamp(min=1)


@keeps_options
def representation_bias(weight: float = 50.0, momentum: float = 1.0) -> Part:
    """Every client adds a vector of its own to the features; their mean is kept near the one that all agreed on.

    Args:
        weight: kappa >= 0 of the mean's regularisation.
        momentum: mu in [0, 1], weight of a batch in the running mean.

    Deviations: the mean that all agreed on comes from the clients of the first round, whose training counts; in the
    paper all clients train once before the first round, and what they trained is thrown away.  Every upload holds
    the client's mean, and the server reads the first it gets.  The vector is trained by the scene's optimiser.
    """
    refuse_outside("weight (kappa)", weight, 0)
    refuse_outside("momentum (mu)", momentum, 0, 1)

    def init_server(shared: Flat, initial: Initial) -> Flat:
        like = next(iter(initial.params.values()))
        return {"mean": like.new_zeros(initial.structure.n_features), "agreed": like.new_zeros(())}

    def init_client(initial: Initial) -> Flat:
        like = next(iter(initial.params.values()))
        return {"bias": like.new_zeros(initial.structure.n_features)}

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        still = {"mean": view.private["bias"] * 0}
        return {**params, NAME: view.private}, {**buffers, NAME: still}

    def forward(inner: Forward, view: View) -> Forward:
        agreed = view.server["agreed"]

        def shifted(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            out, new = inner(params, buffers, batch, train)
            running = momentum * mean_feature(out.features, batch.mask)
            if momentum < 1:
                running = running + (1 - momentum) * buffers[NAME]["mean"]
            new = {**new, NAME: {"mean": running.detach()}}
            features = out.features + agreed * params[NAME]["bias"]
            logits = view.task.head(params["model"], features)
            return out._replace(features=features, logits=logits, extra={**out.extra, NAME: running}), new

        return shifted

    def loss(inner: Loss, view: View) -> Loss:
        target, agreed = view.server["mean"], view.server["agreed"]  # agreed is 0 or 1

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            apart: Tensor = ((out.extra[NAME] - target) ** 2).mean()
            regularised: Tensor = inner(params, batch, out) + weight / 2 * agreed * apart
            return regularised

        return total

    def upload(results: Results, view: View) -> Message:
        return Message(results[UPLOAD].buffers[NAME], view.facts.weight)

    def merge(params: Flat, slot: Flat, mean: Flat, clock: Clock) -> tuple[Flat, Flat]:
        first = {"mean": mean["mean"], "agreed": torch.ones_like(slot["agreed"])}
        return params, where(slot["agreed"] > 0, slot, first)

    def finish(results: Results, view: View) -> Slot:
        return results[UPLOAD].params[NAME]

    def with_bias(view: View) -> Forward:
        def forward(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            out, new = view.task.bare(params, buffers, batch, train)
            features = out.features + params[NAME]["bias"]
            return out._replace(features=features, logits=view.task.head(params["model"], features)), new

        return forward

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        params = {"model": view.current.params, NAME: view.private}
        return {"composed": Predictor(params, {"model": view.current.buffers}, with_bias(view))}

    return Part(
        NAME,
        init_server=init_server,
        init_client=init_client,
        start=start,
        forward=forward,
        loss=loss,
        upload=upload,
        merge=merge,
        finish=finish,
        predictors=predictors,
        needs_head=True,
        broadcasts=True,
        roles=("main predictor", "logit map", "composed predictor"),
        headline="composed",
    )
