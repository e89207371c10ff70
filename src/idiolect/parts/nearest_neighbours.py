"""Nearest neighbours: a client's own rows, remembered by their features, correct what the model predicts (kNN-Per).

p_m(y | x) = lambda_m q_m(y | x) + (1 - lambda_m) p(y | x)                      p: the softmax of the model's logits
q_m(y | x) = sum_i 1{y = y_i} exp(-d_i / s) / sum_i exp(-d_i / s),   d_i = ||h(x) - h(x_i)||
over the k training rows i of client m whose features h(x_i) are nearest
Marfoq, Neglia, Kameni, Vidal, ICML 2022, eqs. (8) and (9), https://arxiv.org/abs/2111.09360
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.core import (
    Batch,
    Clock,
    Flats,
    Forward,
    Measure,
    Mode,
    Model,
    Out,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    Slot,
    Stage,
    Trees,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside

__all__ = ["nearest_neighbours", "neighbours", "place_in_store"]

NAME = "nearest_neighbours"
STORE, TUNING = "datastore", "choice of lambda"
GRID = tuple(share / 10 for share in range(11))
LEAST = 1e-12  # probability


def place_in_store(rows: Tensor, total: Tensor, cap: int) -> Tensor:
    """Returns the place in the store of the rows with these numbers; ``cap`` where a row has none.

    Of more than ``cap`` rows, ``cap`` at even distances have one.

    Args:
        rows: numbers from 0 in the order of the client's data, int64.
        total: how many rows there are, int64.
    """
    many = total.clamp(min=cap)
    place, following = rows * cap // many, (rows + 1) * cap // many
    return torch.where(following > place, torch.where(total > cap, place, rows), cap)


def remembered(cap: int, thin: bool) -> Measure:
    """Measures the features, the labels and the predicted probabilities of a split's rows, at most ``cap`` of them.

    Args:
        thin: of more training rows, those at even distances are kept; otherwise the first.
    """

    def init(model: Model, view: View) -> Slot:
        structure, zero = view.task.structure, view.facts.samples.new_zeros
        return {
            "features": zero(cap, structure.n_features),
            "labels": zero(cap),
            "predicted": zero(cap, structure.n_classes),
            "seen": zero(()),
        }

    def add(store: Slot, model: Model, batch: Batch, view: View) -> Slot:
        out = view.predict(model, batch)
        real = batch.mask > 0
        rows = store["seen"].long() + real.cumsum(0) - 1
        total = view.facts.samples.long() if thin else torch.zeros_like(rows[0])
        place = torch.where(real & (rows < total.clamp(min=cap)), place_in_store(rows, total, cap), cap)
        moves = (torch.arange(cap, device=place.device)[:, None] == place).to(out.features)  # [cap, B]
        new = {
            "features": out.features,
            "labels": batch.y.to(out.features),
            "predicted": torch.softmax(out.logits, -1),
        }
        kept = {name: store[name] + moves @ leaf for name, leaf in new.items()}
        return {**kept, "seen": store["seen"] + batch.mask.sum()}

    return Measure(init, add)


def neighbours(features: Tensor, store: Slot, count: int, scale: float, n_classes: int) -> Tensor:
    """Returns q_m [B, K] at the features [B, d]; zeros where the store is empty.

    Args:
        store: ``features`` [cap, d] and ``labels`` [cap], of which the first ``held`` are filled.
    """
    cap = len(store["features"])
    apart = torch.cdist(features, store["features"], compute_mode="donot_use_mm_for_euclid_dist")
    filled = torch.arange(cap, device=features.device) < store["held"]
    nearest, which = torch.where(filled, apart, float("inf")).topk(min(count, cap), -1, largest=False)
    near = nearest.isfinite()
    share = torch.exp((nearest[:, :1] - nearest) / scale)  # 1 for the nearest, so that no sum is 0
    share = torch.where(near, share, 0)
    share = share / share.sum(-1, keepdim=True).clamp(min=1)
    labels = store["labels"].long().index_select(0, which.flatten()).unflatten(0, which.shape)
    return (share[..., None] * F.one_hot(labels, n_classes).to(share)).sum(-2)


def best_share(predicted: Tensor, remembered: Tensor, labels: Tensor, held: Tensor) -> Tensor:
    """Returns the lambda of the grid with the most rows right, and of those the likeliest; the smallest of equals.

    Args:
        predicted, remembered: p and q [N, K], of which the first ``held`` rows count.
    """
    shares = torch.tensor(GRID).to(predicted)
    mixed = shares[:, None, None] * remembered + (1 - shares)[:, None, None] * predicted  # [G, N, K]
    counts = (torch.arange(len(labels), device=labels.device) < held).to(predicted)
    right = ((mixed.argmax(-1) == labels) * counts).sum(-1)
    own = (mixed * F.one_hot(labels, mixed.shape[-1])).sum(-1)
    likelihood = (own.clamp(min=LEAST).log() * counts).sum(-1) / held.clamp(min=1)
    merit = right + likelihood.exp()  # rows are whole numbers, and a likelihood is at most 1
    return shares.index_select(0, merit.argmax().reshape(1))[0]


@keeps_options
def nearest_neighbours(
    count: int = 10, share: float | None = None, scale: float = 1.0, cap: int = 500
) -> Part:
    """After the last round every client remembers its training rows, and chooses how much they count.

    Args:
        count: k >= 1, neighbours.
        share: lambda_m in [0, 1] for all clients; None lets each client choose its own from 0, 0.1, ..., 1, by how many
            rows of its validation data are right, and by their likelihood among equals.
        scale: s > 0, the distance over which a neighbour's share falls to 1/e.
        cap: >= 1, the most rows that a client remembers, for which its state has room whether it has them or not; of
            more, so many at even distances in the order of its data.

    A client without training rows has lambda_m = 0, which is the model alone.

    Deviations: rows beyond the cap are dropped; a client with more validation rows chooses by the first of them.  The
    paper does not say on which grid lambda_m is tuned.  The scale is 1 in the paper.
    """
    refuse_outside("count (k)", count, 1)
    refuse_outside("scale", scale, 1e-12)
    refuse_outside("cap", cap, 1)
    if share is not None:
        refuse_outside("share (lambda)", share, 0, 1)

    def as_scored(received: Trees, results: Results, view: View) -> Trees:
        return {"model": view.received.params}, {"model": view.received.buffers}

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        store = Stage(STORE, NAME, as_scored, measure=remembered(cap, thin=True))
        tune = Stage(TUNING, NAME, as_scored, measure=remembered(cap, thin=False), split="valid")
        return plan._replace(end=(*plan.end, store, *([tune] if share is None else [])))

    def personalise(results: Results, view: View) -> Slot:
        found = results[STORE].measured
        held = found["seen"].clamp(max=cap)
        store = {"features": found["features"], "labels": found["labels"], "held": held}
        if share is not None:
            chosen = torch.full_like(held, share)
        else:
            valid = results[TUNING].measured
            q = neighbours(valid["features"], store, count, scale, view.task.structure.n_classes)
            chosen = best_share(valid["predicted"], q, valid["labels"].long(), valid["seen"].clamp(max=cap))
        return {**store, "lambda": torch.where(held > 0, chosen, 0)}

    def mixture(view: View) -> Forward:
        def forward(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            out, new = view.task.bare(params, buffers, batch, train)
            store = params[NAME]
            q = neighbours(out.features, store, count, scale, view.task.structure.n_classes)
            mixed = store["lambda"] * q + (1 - store["lambda"]) * torch.softmax(out.logits, -1)
            return out._replace(logits=mixed.clamp(min=LEAST).log()), new

        return forward

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        if not view.private:
            return {}
        params = {"model": view.received.params, NAME: view.private}
        return {"mix(lambda)": Predictor(params, {"model": view.received.buffers}, mixture(view))}

    def remarks(view: View) -> dict[str, Tensor]:
        return {"lambda": view.private["lambda"], "rows remembered": view.private["held"]}

    return Part(
        NAME,
        stages=stages,
        personalise=personalise,
        predictors=predictors,
        remarks=remarks,
        scored_with_download=True,
        needs_validation=share is None,
        needs_classes=True,
        needs_head=True,
        roles=("mixed predictor",),
        headline="mix(lambda)",
    )
