"""Adaptive companion: a private mentor and the shared mentee teach each other the more, the better both are (FedKD).

L_t = CE(z_t) + [KL(p_s || p_t) + beta MSE(h_t, W h_s)] / (CE(z_t) + CE(z_s))        mentor, private
L_s = CE(z_s) + [KL(p_t || p_s) + beta MSE(h_t, W h_s)] / (CE(z_t) + CE(z_s))        mentee, shared
each differentiated by the model's own parameters, h features, W in R^(d x d) the client's own
Wu, Wu, Lyu, Huang, Xie, Nature Communications 2022, https://arxiv.org/abs/2108.13323
"""

from __future__ import annotations

import math

from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Flats,
    Forward,
    Initial,
    Loss,
    Mode,
    Model,
    Out,
    Part,
    Predictor,
    Results,
    View,
)
from idiolect.core.masked_mean import mean_over_rows
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside
from idiolect.parts.distillation import kl
from idiolect.parts.mutual_companion import mutual_companion

__all__ = ["adaptive_companion"]

NAME = "adaptive_companion"
MAP, WEIGHT = "feature map", "map.weight"
LOGITS, FEATURES = f"{NAME} logits", f"{NAME} features"
LEAST = 1e-6  # of the losses that divide


@keeps_options
def adaptive_companion(hidden_weight: float = 1.0, companion_init: str = "fresh") -> Part:
    """Both models train on every batch, from the labels, and from each other as far as their losses are small.

    Args:
        hidden_weight: beta >= 0 of the distance between features; 1 in the paper.
        companion_init: ``fresh`` (the client's own seed) or ``copy``.

    Deviations: the mentor has the mentee's architecture.  Features are what enters the last unit; attention maps,
    which the paper compares too, are those of transformers.  The losses that divide are weights, and not
    differentiated: where the models differ much, their gradient would turn that of the labels round.  W takes the
    scene's steps along the gradient of its distance, which counts once although it is in both losses; it begins as a
    linear layer, with numbers from U(-1 / sqrt(d), 1 / sqrt(d)) that are the same for all clients.  The sum that
    divides is at least 1e-6.
    """
    refuse_outside("hidden_weight (beta)", hidden_weight, 0)
    mutual = mutual_companion(companion_init=companion_init)
    assert mutual.init_client and mutual.start and mutual.finish
    first, begin, trained = mutual.init_client, mutual.start, mutual.finish

    def init_client(initial: Initial) -> Flats:
        d = initial.structure.n_features
        return {**first(initial), MAP: {WEIGHT: initial.spread(f"{NAME} {MAP}", (d, d)) / math.sqrt(d)}}

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        params, buffers = begin(params, buffers, view)
        return {**params, MAP: view.private[MAP]}, buffers

    def forward(inner: Forward, view: View) -> Forward:
        def both(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            ours, new = inner({"model": params["model"]}, {"model": buffers["model"]}, batch, train)
            mine, own = inner({"model": params["own"]}, {"model": buffers["own"]}, batch, train)
            extra = {**ours.extra, LOGITS: mine.logits, FEATURES: mine.features}
            return ours._replace(extra=extra), {"model": new["model"], "own": own["model"]}

        return both

    def loss(inner: Loss, view: View) -> Loss:
        criterion = view.task.criterion

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            logits = out.extra[LOGITS]
            own = criterion(params, batch, out._replace(logits=logits))
            ours = criterion(params, batch, out)
            apart = kl(out.logits, logits, batch.mask, 1.0) + kl(logits, out.logits, batch.mask, 1.0)
            mapped = out.features @ params[MAP][WEIGHT].T
            hidden = ((out.extra[FEATURES] - mapped) ** 2).mean(-1)
            apart = apart + hidden_weight * mean_over_rows(hidden, batch.mask)
            return inner(params, batch, out) + own + apart / (own + ours).detach().clamp(min=LEAST)

        return total

    def finish(results: Results, view: View) -> Flats:
        return {**trained(results, view), MAP: results[UPLOAD].params[MAP]}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        return {"companion": Predictor.of(Model(view.private["params"], view.private["buffers"]))}

    return mutual._replace(
        name=NAME,
        init_client=init_client,
        start=start,
        forward=forward,
        loss=loss,
        finish=finish,
        predictors=predictors,
        needs_head=True,
    )
