"""Conditional policy: each feature is split between the shared head and the client's own (FedCP).

c = h o v/||v||,   v = sum_c w_c  over the rows of the client's own head as a round begins
a = relu(layernorm(A c + b)) in R^(d x 2),   r = softmax over the pairs, first (shared) part;   s = 1 - r
logits = head(r o h) + head_k(s o h),   head as received and frozen
L = CE + lambda MMD^2(h, h_received)
up: body, policy (A, b, layernorm) and (head_k + head) / 2;   the server averages all three
Zhang, Hua, Wang, Song, Xue, Ma, Guan, KDD 2023, https://arxiv.org/abs/2307.01217
"""

from __future__ import annotations

import math
from dataclasses import replace

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
    Plan,
    Predictor,
    Results,
    Scene,
    Structure,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import pick
from idiolect.errors import UserError, refuse_outside
from idiolect.parts.average import average
from idiolect.parts.private_layers import own_units
from idiolect.parts.transfer import mmd_squared

__all__ = ["conditional_policy"]

NAME = "conditional_policy"
HALVES = ("shared", "own")
OWN, PREFIX = "own head", "own "  # a tree beside the model, and what its names begin with
is_head = own_units(1)


def unlike_head(name: str, structure: Structure) -> bool:
    return not is_head(name, structure)


def first_policy(initial: Initial) -> Flat:
    """Returns a policy whose linear layer starts as those of a network."""
    d, tree = initial.structure.n_features, {}
    for half in HALVES:
        tree[f"{half}.weight"] = initial.spread(f"{NAME} {half} weight", (d, d)) / math.sqrt(d)
        tree[f"{half}.bias"] = initial.spread(f"{NAME} {half} bias", (d,)) / math.sqrt(d)
        tree[f"{half}.scale"] = torch.ones_like(tree[f"{half}.bias"])
        tree[f"{half}.shift"] = torch.zeros_like(tree[f"{half}.bias"])
    return tree


def shared_share(policy: Flat, inputs: Tensor) -> Tensor:
    """Returns r [B, d] for the inputs c [B, d] of the policy."""
    weight, bias, scale, shift = (
        torch.cat([policy[f"{half}.{name}"] for half in HALVES])
        for name in ("weight", "bias", "scale", "shift")
    )
    raised = F.relu(F.layer_norm(F.linear(inputs, weight, bias), bias.shape, scale, shift))
    shared, own = raised.chunk(2, -1)
    return torch.sigmoid(shared - own)


@keeps_options
def conditional_policy(weight: float = 0.1) -> Part:
    """Splits every feature by a policy that all clients learn, between the received head and one of the client's own.

    Args:
        weight: lambda >= 0 of the discrepancy between the features and those of the received model.

    Deviations: the MMD estimator is the one of FedPHP and MAP (five kernels, bandwidth from the batch), whose size
    does not depend on that of the features, so that a lambda of 5 outweighs the labels.  The policy is the softmax
    itself, in training and evaluation.  The part updates the server, because what is uploaded of the head is half
    the received one.
    """
    refuse_outside("weight (lambda)", weight, 0)
    plain = average()

    def check(structure: Structure, scene: Scene) -> None:
        if not structure.linear_head:
            raise UserError(f"{NAME} needs a network whose classifier is a single linear layer and trained")

    def init_server(shared: Flat, initial: Initial) -> Flat:
        return first_policy(initial)

    def init_client(initial: Initial) -> Flat:
        return pick(initial.params, lambda name: is_head(name, initial.structure))

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        own = {PREFIX + name: tensor for name, tensor in view.private.items()}
        return {**params, NAME: view.server, OWN: own}, buffers

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        """Freezes the received head; the own one, a tree of its own, is trained."""
        kept = (replace(s, trainable=unlike_head) if s.name == "main" else s for s in plan.before)
        return plan._replace(before=tuple(kept))

    def split(inner: Forward, view: View) -> Forward:
        direction = F.normalize(view.private[view.task.structure.classifier].sum(0), dim=0)

        def forward(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            out, new = inner(params, buffers, batch, train)
            share = shared_share(params[NAME], out.features * direction)
            own = {name.removeprefix(PREFIX): tensor for name, tensor in params[OWN].items()}
            theirs = view.task.head(params["model"], share * out.features)
            mine = view.task.head(own, (1 - share) * out.features)
            return out._replace(logits=theirs + mine), new

        return forward

    def loss(inner: Loss, view: View) -> Loss:
        if not weight:
            return inner

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            theirs = view.predict(view.origin, batch).features.detach()
            return inner(params, batch, out) + weight * mmd_squared(out.features, theirs, batch.mask)

        return total

    def upload(results: Results, view: View) -> Message:
        trained = results[UPLOAD].params
        halved = {name: (trained[OWN][PREFIX + name] + trained["model"][name]) / 2 for name in view.private}
        model = {name: halved.get(name, trained["model"][name]) for name in view.origin.params}
        return Message({"model": model, "policy": trained[NAME]}, view.facts.weight)

    def origin(params: Flat, slot: Flat) -> Flats:
        return {"model": params, "policy": slot}

    def merge(params: Flat, slot: Flat, mean: Flats, clock: Clock) -> tuple[Flat, Flat]:
        return {**params, **mean["model"]}, mean["policy"]

    def finish(results: Results, view: View) -> Flat:
        return {name: results[UPLOAD].params[OWN][PREFIX + name] for name in view.private}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        assert plain.predictors
        params, _ = start({"model": view.current.params}, {}, view)
        composed = Predictor(params, {"model": view.current.buffers}, split(view.task.bare, view))
        return {**plain.predictors(view, results), "composed": composed}

    return plain._replace(
        name=NAME,
        check=check,
        init_server=init_server,
        init_client=init_client,
        start=start,
        stages=stages,
        forward=split,
        loss=loss,
        upload=upload,
        origin=origin,
        merge=merge,
        finish=finish,
        predictors=predictors,
        broadcasts=True,
        needs_head=True,
        needs_whole=True,
        roles=("server update", "uploaded models", "main predictor", "logit map", "composed predictor"),
        headline="composed",
        gives_way=False,
    )
