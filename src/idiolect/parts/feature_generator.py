"""Feature generator: the server learns features that clients agree on for each label, and they train on them (FedGen).

z = G(y, eps; w) = B relu(A eps + E_y + a) + b,   eps ~ N(0, I),   y ~ p(y), the labels of the round's clients
server  min_w  E_{y, eps} CE(sigma(1/C sum_k h(z; theta_k)), y) + eta exp(-mean_ij D(eps_i, eps_j) |z_i - z_j|)
client  min_theta  F_k(theta) + alpha E_{y, eps} CE(sigma(h(z; theta)), y)                       h: the head of a model
Zhu, Hong, Zhou, ICML 2021, eqs. (4) and (5) and algorithm 1, https://arxiv.org/abs/2105.10056
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from idiolect.core import (
    Batch,
    Clock,
    Flat,
    Flats,
    Initial,
    Loss,
    Message,
    Out,
    Part,
    Plan,
    Results,
    Scene,
    Slot,
    Stage,
    Structure,
    Trees,
    View,
    adam,
)
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside

__all__ = ["diversity_loss", "feature_generator", "generated"]

NAME = "feature_generator"
STAGE = "generator"
PREFIX = "generator."
EDGE = 1e-6  # of probability, within which a uniform draw has no normal one


def first_generator(initial: Initial, noise: int, width: int) -> Flat:
    """Returns a generator whose linear layers start as those of a network."""
    k, d = initial.structure.n_classes, initial.structure.n_features

    def layer(name: str, shape: tuple[int, ...], into: int) -> Tensor:
        return initial.spread(f"{NAME} {name}", shape) / math.sqrt(into)

    return {
        f"{PREFIX}noise": layer("noise", (width, noise), noise + k),
        f"{PREFIX}label": layer("label", (k, width), noise + k),
        f"{PREFIX}shift": layer("shift", (width,), noise + k),
        f"{PREFIX}weight": layer("weight", (d, width), width),
        f"{PREFIX}bias": layer("bias", (d,), width),
    }


def generated(generator: Flat, labels: Tensor, noise: Tensor) -> Tensor:
    """Returns features [S, d] of labels [S] and noise [S, n]."""
    hidden = F.linear(noise, generator[f"{PREFIX}noise"], generator[f"{PREFIX}shift"])
    hidden = hidden + generator[f"{PREFIX}label"].index_select(0, labels)
    return F.linear(F.relu(hidden), generator[f"{PREFIX}weight"], generator[f"{PREFIX}bias"])


def diversity_loss(noise: Tensor, features: Tensor) -> Tensor:
    """Returns exp(-mean_ij D(eps_i, eps_j) |z_i - z_j|), small where unlike noise makes unlike features.

    D is the mean squared difference of the noise [S, n], and |.| the mean absolute one of the features [S, d].
    """
    noise_apart = ((noise[:, None] - noise[None]) ** 2).mean(-1)
    features_apart = (features[:, None] - features[None]).abs().mean(-1)
    return torch.exp(-(noise_apart * features_apart).mean())


def labels_and_noise(draws: Tensor, counts: Tensor, samples: int) -> tuple[Tensor, Tensor]:
    """Returns labels [S] in proportion to counts [K], and noise [S, n] from N(0, 1), both from U(0, 1) draws."""
    for_label, for_noise = draws[:samples], draws[samples:].unflatten(0, (samples, -1))
    reached = counts.cumsum(0) / counts.sum().clamp(min=1e-12)
    labels = (reached[:-1] <= for_label[:, None]).sum(-1)
    noise = math.sqrt(2) * torch.erfinv(2 * for_noise.clamp(EDGE, 1 - EDGE) - 1)
    return labels, noise


@keeps_options
def feature_generator(
    weight: float = 1.0,
    diversity: float = 1.0,
    steps: int = 50,
    learning_rate: float = 3e-3,
    samples: int = 32,
    noise: int = 32,
    width: int = 64,
) -> Part:
    """The server trains a generator of features after each merge and broadcasts it; clients train their head on it too.

    Args:
        weight: alpha >= 0, of the loss on generated features; 0 is the method without them.
        diversity: eta >= 0, of the server's diversity loss.
        steps: >= 0, steps of the generator's training in a round.
        learning_rate: >= 0, of Adam in these steps.
        samples: S >= 2, features that each step of a client or the server generates.
        noise: n >= 1, the length of eps.
        width: >= 1, of the generator's hidden layer.

    Deviations: a client counts the labels of all its training rows, once a round, where the paper counts those of the
    batches.  In the first round nothing is generated.  The hidden layer has no batch normalisation, and Adam starts
    anew in every round.  The ensemble weighs the clients of a round alike, as in eq. (4).  All of the network is
    shared; the paper also shares the head alone.
    """
    refuse_outside("weight (alpha)", weight, 0)
    refuse_outside("diversity (eta)", diversity, 0)
    refuse_outside("steps", steps, 0)
    refuse_outside("learning_rate", learning_rate, 0)
    refuse_outside("samples (S)", samples, 2)
    refuse_outside("noise (n)", noise, 1)
    refuse_outside("width", width, 1)

    def init_server(shared: Flat, initial: Initial) -> Slot:
        counts = next(iter(shared.values())).new_zeros(initial.structure.n_classes)
        return {"generator": first_generator(initial, noise, width), "labels": counts}

    def draws(structure: Structure) -> int:
        return samples * (1 + noise)

    def loss(inner: Loss, view: View) -> Loss:
        if not weight:
            return inner
        generator, counts = view.server["generator"], view.server["labels"]

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            labels, eps = labels_and_noise(batch.draws[NAME], counts, samples)
            logits = view.task.head(params["model"], generated(generator, labels, eps))
            taught = F.cross_entropy(logits, labels)
            return inner(params, batch, out) + weight * torch.where(counts.sum() > 0, taught, 0)

        return total

    def upload(results: Results, view: View) -> Message:
        return Message({"labels": view.facts.class_counts}, torch.ones_like(view.facts.weight))

    def merge(params: Flat, slot: Slot, mean: Slot, clock: Clock) -> tuple[Flat, Slot]:
        return params, {**slot, "labels": mean["labels"]}

    def start(received: Trees, results: Results, view: View) -> Trees:
        params, buffers = received
        return {**params, NAME: view.server["generator"]}, buffers

    def objective(view: View) -> Loss:
        def of_client(head: Flat, features: Tensor) -> Tensor:
            return view.task.head(head, features)

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            labels, eps = labels_and_noise(batch.draws[NAME], view.server["labels"], samples)
            features = generated(params[NAME], labels, eps)
            logits = vmap(of_client, in_dims=(0, None))(view.uploads["params"], features).mean(0)
            return F.cross_entropy(logits, labels) + diversity * diversity_loss(eps, features)

        return total

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        train = Stage(
            STAGE,
            NAME,
            start,
            objective,
            steps=steps,
            lr_scale=learning_rate,
            trainable=lambda name, structure: name.startswith(PREFIX),
            split="none",
            optimiser=adam(),
        )
        return plan._replace(server=(*plan.server, train))

    def serve_slot(results: Results, view: View) -> Slot:
        return {**view.server, "generator": results[STAGE].params[NAME]}

    return Part(
        NAME,
        init_server=init_server,
        draws=draws,
        loss=loss,
        upload=upload,
        merge=merge,
        stages=stages,
        serve_slot=serve_slot,
        broadcasts=True,
        individual=True,
        needs_classes=True,
        needs_head=True,
        needs_whole=True,
        roles=("uploaded models",),
    )
