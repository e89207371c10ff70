"""Class prototypes: only the mean feature of each class travels (FedProto).

local   CE + lambda mean_{i, dim} (h_i - pbar_{y_i})^2     over classes with a shared prototype
up      mean feature and count of every class observed;   server: pbar_c = sum_k n_kc p_kc / sum_k n_kc
nearest argmin_c ||h(x) - pbar_c||                        beside the classifier
Tan et al., AAAI 2022, https://arxiv.org/abs/2105.00243
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.core import (
    Batch,
    Clock,
    Flat,
    Flats,
    Forward,
    Initial,
    Loss,
    Measure,
    Message,
    Mode,
    Model,
    Out,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    Stage,
    View,
)
from idiolect.core.masked_mean import mean_over_rows
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside, refuse_unknown_choice

__all__ = ["class_prototypes", "class_sums"]

NAME = "class_prototypes"
STAGE = "prototypes"


def class_sums() -> Measure:
    """Measures the sum of the features and the number of samples of every class."""

    def init(model: Model, view: View) -> Flat:
        structure, zero = view.task.structure, view.facts.samples.new_zeros
        return {"sum": zero(structure.n_classes, structure.n_features), "count": zero(structure.n_classes)}

    def add(sums: Flat, model: Model, batch: Batch, view: View) -> Flat:
        features = view.predict(model, batch).features
        member = F.one_hot(batch.y, view.task.structure.n_classes).to(features) * batch.mask[:, None]
        return {"sum": sums["sum"] + member.T @ features, "count": sums["count"] + member.sum(0)}

    return Measure(init, add)


def nearness(features: Tensor, prototypes: Tensor) -> Tensor:
    """Minus the squared distance of every row [B, d] to every prototype [K, d], as logits [B, K].

    A class without a prototype gets a lower logit than all the others, so it is never predicted.
    """
    known = ~prototypes.isnan().any(-1)
    filled = torch.where(known[:, None], prototypes, 0)
    squares = (features**2).sum(-1)[:, None] + (filled**2).sum(-1) - 2 * features @ filled.T
    distance = torch.where(known, squares.clamp(min=0), 0)
    return -torch.where(known, distance, 2 * distance.amax(-1, keepdim=True) + 1)


@keeps_options
def class_prototypes(weight: float = 1.0, reduction: str = "mean") -> Part:
    """Pulls features towards the prototypes that all clients share, and sends the client's own.

    Args:
        weight: lambda >= 0.
        reduction: over the dimensions of a feature, ``mean`` (the authors' code) or ``sum``.

    Deviations: a class without a shared prototype adds no term.  Absent prototypes are NaN on the
    server; a class that nobody sent in a round keeps the prototype it had.  The headline is the client's own
    classifier; prediction by the nearest shared prototype is scored beside it as ``nearest-prototype``.  A class that
    nobody ever sent is never predicted that way, and before the first prototypes exist the classifier predicts instead.
    """
    refuse_outside("weight (lambda)", weight, 0)
    refuse_unknown_choice("reduction", reduction, ("mean", "sum"))

    def init_server(shared: Flat, initial: Initial) -> Flat:
        structure = initial.structure
        like = next(iter(initial.params.values()))
        return {"prototypes": like.new_full((structure.n_classes, structure.n_features), float("nan"))}

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        measure = Stage(STAGE, NAME, measure=class_sums())
        return plan._replace(before=(*plan.before, measure))

    def loss(inner: Loss, view: View) -> Loss:
        wanted = view.server["prototypes"]
        known = ~wanted.isnan().any(-1)
        filled = torch.where(known[:, None], wanted, 0)

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            gap = (out.features - filled[batch.y]) ** 2
            each = gap.mean(-1) if reduction == "mean" else gap.sum(-1)
            counted = each * known[batch.y].to(each)
            return inner(params, batch, out) + weight * mean_over_rows(counted, batch.mask)

        return total

    def upload(results: Results, view: View) -> Message:
        return Message(results[STAGE].measured, torch.ones_like(view.facts.weight))

    def scalars(value: Flat) -> int:
        """Counts the rows of observed classes, and one count for each."""
        n_observed, width = int((value["count"] > 0).sum()), int(value["sum"].shape[-1])
        return n_observed * (width + 1)

    def merge(params: Flat, slot: Flat, mean: Flat, clock: Clock) -> tuple[Flat, Flat]:
        seen = mean["count"] > 0
        fresh = mean["sum"] / mean["count"].clamp(min=1e-12)[:, None]
        return params, {"prototypes": torch.where(seen[:, None], fresh, slot["prototypes"])}

    def nearest(view: View) -> Forward:
        def forward(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            out, new = view.task.bare(params, buffers, batch, train)
            prototypes = params["shared"]["prototypes"]
            logits = torch.where(prototypes.isnan().all(), out.logits, nearness(out.features, prototypes))
            return out._replace(logits=logits), new

        return forward

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        params = {"model": view.current.params, "shared": view.server}
        return {"nearest-prototype": Predictor(params, {"model": view.current.buffers}, nearest(view))}

    return Part(
        NAME,
        needs_head=True,
        init_server=init_server,
        stages=stages,
        loss=loss,
        upload=upload,
        scalars=scalars,
        merge=merge,
        predictors=predictors,
        broadcasts=True,
        needs_classes=True,
        mean_alone="sends sums and counts, whose ratio a client can set for a class that it alone sends",
    )
