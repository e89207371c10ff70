"""Feature fusion: features of the received and of the local extractor, fused before the classifier (FedFusion).

multi   lam o h_g + (1 - lam) o h_l, lam in R^d;   single   the same with one lam;   conv   W [h_g; h_l]
Yao et al., ICIP 2019
"""

from __future__ import annotations

from collections.abc import Callable

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
    Message,
    Mode,
    Model,
    Out,
    Part,
    Predictor,
    Results,
    Task,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside, refuse_unknown_choice

__all__ = ["feature_fusion"]

NAME = "feature_fusion"


def blend(fusion: Tensor, received: Tensor, local: Tensor) -> Tensor:
    """lam o h_g + (1 - lam) o h_l."""
    return fusion * received + (1 - fusion) * local


def conv(fusion: Tensor, received: Tensor, local: Tensor) -> Tensor:
    """A 1x1 convolution on concatenated feature vectors: a linear layer from 2d to d."""
    return torch.cat([received, local], -1) @ fusion.T


OPERATORS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "multi": blend,
    "single": blend,
    "conv": conv,
}


@keeps_options
def feature_fusion(operator: str = "multi", initial_share: float = 0.1, fixed: bool = False) -> Part:
    """The classifier sees a fusion of what the frozen received extractor and the one in training see.

    Args:
        operator: ``multi`` (default), ``single`` or ``conv``.
        initial_share: lam at the start in [0, 1], the received features' share.
        fixed: keeps the fusion as it starts, for study.

    Deviations: the fusion operator is averaged like the model; ``conv`` acts on feature vectors.
    """
    refuse_unknown_choice("operator", operator, OPERATORS)
    refuse_outside("initial_share (lam)", initial_share, 0, 1)
    fuse = OPERATORS[operator]

    def init_server(shared: Flat, initial: Initial) -> Flat:
        d, like = initial.structure.n_features, next(iter(initial.params.values()))
        if operator == "conv":
            one = torch.eye(d, dtype=like.dtype, device=like.device)
            return {"fusion": torch.cat([initial_share * one, (1 - initial_share) * one], 1)}
        return {"fusion": like.new_full((d,) if operator == "multi" else (), initial_share)}

    def fused(task: Task, received: Model, slot: Flat) -> Forward:
        def forward(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            out, new = task.forward(params["model"], buffers["model"], batch, train)
            theirs = task.forward(received.params, received.buffers, batch, False)[0].features.detach()
            h = fuse(params.get("fusion", slot)["fusion"], theirs, out.features)
            return out._replace(features=h, logits=task.head(params["model"], h)), {**buffers, "model": new}

        return forward

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        return (params if fixed else {**params, "fusion": view.server}), buffers

    def forward(inner: Forward, view: View) -> Forward:
        return fused(view.task, view.origin, view.server)

    def upload(results: Results, view: View) -> Message:
        return Message(results[UPLOAD].params.get("fusion", view.server), view.facts.weight)

    def origin(params: Flat, slot: Flat) -> Flat:
        return slot

    def merge(params: Flat, slot: Flat, mean: Flat, clock: Clock) -> tuple[Flat, Flat]:
        return params, mean

    def shared_model(model: Model, slot: Flat, task: Task) -> Predictor:
        """The averaged extractor plays both roles."""
        params = {"model": model.params, "fusion": slot}
        return Predictor(params, {"model": model.buffers}, fused(task, model, slot))

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        found = {"global": shared_model(view.origin, view.server, view.task)}
        if results:
            trained = results[UPLOAD]
            found["after-local"] = Predictor(
                trained.params, trained.buffers, fused(view.task, view.origin, view.server)
            )
        return found

    return Part(
        NAME,
        needs_head=True,
        init_server=init_server,
        start=start,
        forward=forward,
        upload=upload,
        origin=origin,
        merge=merge,
        predictors=predictors,
        shared_model=shared_model,
        broadcasts=True,
        needs_whole=True,
        roles=("main predictor", "logit map"),
        headline="global",
    )
