"""Conditional features: a shared valve turns a feature into one for everybody and one for the client (GPFL).

valve    V(h, c) = relu( (gamma(c) + 1) o h + beta(c) ),   gamma(c), beta(c): each layernorm(relu(A c + a))
inputs   g = 1/K sum_c v_c  for everybody,   g_k = sum_c n_kc/n_k v_c  for client k;   v_c the embedding of class c
own      CE( head_k(V(h, g_k)), y ),   the head stays on the client and predicts
shared   CE( [cos(V(h, g), v_c)]_c, y ) + lambda mean_i ||V(h_i, g) - vhat_{y_i}||,   vhat as received
decay    mu/2 (sum of squares of embeddings and valve)
The body, the embeddings and the valve are averaged
Zhang, Hua, Wang, Song, Xue, Ma, Cao, Guan, ICCV 2023, https://arxiv.org/abs/2308.10279
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
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
    View,
)
from idiolect.core.masked_mean import mean_over_rows
from idiolect.core.part import keeps_options
from idiolect.core.trees import squared_distance, zeros_like
from idiolect.errors import refuse_outside
from idiolect.parts.private_layers import private_layers

__all__ = ["conditional_features"]

NAME = "conditional_features"


def valve(tree: Flat, features: Tensor, condition: Tensor) -> Tensor:
    """V(h, c) for features [B, d] and one condition [d]."""

    def generated(name: str) -> Tensor:
        raised = F.relu(F.linear(condition, tree[f"{name}.weight"], tree[f"{name}.bias"]))
        return F.layer_norm(raised, condition.shape, tree[f"{name}.scale"], tree[f"{name}.shift"])

    return F.relu((generated("gamma") + 1) * features + generated("beta"))


def first_valve(initial: Initial, scale: float) -> Flat:
    """Returns embeddings of variance 1, and a valve whose linear layers start as those of a network."""
    k, d = initial.structure.n_classes, initial.structure.n_features
    tree = {"classes": math.sqrt(3) * initial.spread(f"{NAME} classes", (k, d))}
    for name in ("gamma", "beta"):
        tree[f"{name}.weight"] = initial.spread(f"{NAME} {name} weight", (d, d)) / math.sqrt(d)
        tree[f"{name}.bias"] = initial.spread(f"{NAME} {name} bias", (d,)) / math.sqrt(d)
        tree[f"{name}.scale"] = torch.full_like(tree[f"{name}.bias"], scale)
        tree[f"{name}.shift"] = torch.zeros_like(tree[f"{name}.bias"])
    return tree


def own_condition(view: View) -> Tensor:
    counts = view.facts.class_counts
    condition: Tensor = counts / counts.sum().clamp(min=1) @ view.server["classes"]
    return condition


@keeps_options
def conditional_features(
    weight: float = 0.01, decay: float = 0.0, head_init: str = "shared", valve_scale: float = 0.1
) -> Part:
    """The private head sees features conditioned on the client's classes, the embeddings those that serve everybody.

    Args:
        weight: lambda >= 0 of the distance to the received embeddings.
        decay: mu >= 0, weight decay of embeddings and valve.
        head_init: of the private head, ``shared`` or ``random``.
        valve_scale: >= 0, the first scale of both layer normalisations; near 0 the valve begins as relu(h).

    Deviations: the layer normalisations begin with a scale of 0.1, not 1, at which gamma and beta begin as random
    numbers larger than the features, so that the body learns slowly; the preset ``paper`` has 1.  Both inputs of the
    valve follow from the embeddings as received and stay as they are in local training.  The distance is a mean over
    rows, not the norm of a whole batch.
    """
    refuse_outside("weight (lambda)", weight, 0)
    refuse_outside("decay (mu)", decay, 0)
    refuse_outside("valve_scale", valve_scale, 0)
    kept = private_layers(1, head_init)

    def init_server(shared: Flat, initial: Initial) -> Flat:
        return first_valve(initial, valve_scale)

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        assert kept.start
        params, buffers = kept.start(params, buffers, view)
        return {**params, NAME: view.server}, buffers

    def forward(inner: Forward, view: View) -> Forward:
        everybody, own = view.server["classes"].mean(0), own_condition(view)

        def conditioned(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            out, new = inner(params, buffers, batch, train)
            shared = valve(params[NAME], out.features, everybody)
            features = valve(params[NAME], out.features, own)
            logits = view.task.head(params["model"], features)
            return out._replace(features=features, logits=logits, extra={**out.extra, NAME: shared}), new

        return conditioned

    def loss(inner: Loss, view: View) -> Loss:
        received = view.server["classes"]

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            tree, shared = params[NAME], out.extra[NAME]
            cosines = F.normalize(shared, dim=-1) @ F.normalize(tree["classes"], dim=-1).T
            named = view.task.criterion(params, batch, out._replace(logits=cosines))
            squares = ((shared - received[batch.y]) ** 2).sum(-1)
            apart = torch.where(squares > 0, squares, 1).sqrt() * (squares > 0)
            guided = inner(params, batch, out) + named + weight * mean_over_rows(apart, batch.mask)
            return guided + decay / 2 * squared_distance(zeros_like(tree), tree) if decay else guided

        return total

    def upload(results: Results, view: View) -> Message:
        return Message(results[UPLOAD].params[NAME], view.facts.weight)

    def origin(params: Flat, slot: Flat) -> Flat:
        return slot

    def merge(params: Flat, slot: Flat, mean: Flat, clock: Clock) -> tuple[Flat, Flat]:
        return params, mean

    def predicting(view: View) -> Forward:
        own = own_condition(view)

        def forward(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            out, new = view.task.bare(params, buffers, batch, train)
            features = valve(params[NAME], out.features, own)
            return out._replace(features=features, logits=view.task.head(params["model"], features)), new

        return forward

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        params = {"model": view.current.params, NAME: view.server}
        return {"composed": Predictor(params, {"model": view.current.buffers}, predicting(view))}

    return kept._replace(
        name=NAME,
        init_server=init_server,
        start=start,
        forward=forward,
        loss=loss,
        upload=upload,
        origin=origin,
        merge=merge,
        predictors=predictors,
        broadcasts=True,
        needs_classes=True,
        roles=(*kept.roles, "main predictor", "logit map"),
    )
