"""Hypernetwork: a network on the server makes each client's model from an embedding of the client (pFedHN).

theta_i = h(v_i; phi):   z_i = relu(A_3 relu(A_2 relu(A_1 v_i + a_1) + a_2) + a_3),   theta_i = W z_i + b
client    theta~_i: the local training of theta_i
server    phi <- phi - alpha sum_i p_i (d theta_i / d phi)^T (theta_i - theta~_i)
          v_i <- v_i - alpha (d theta_i / d v_i)^T (theta_i - theta~_i)
Shamsian, Navon, Fetaya, Chechik, ICML 2021, algorithm 1, https://arxiv.org/abs/2103.04628
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.core import (
    Flat,
    Initial,
    Part,
    Predictor,
    Results,
    ServerView,
    Slot,
    Uploaded,
    View,
    derive,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import tree_map
from idiolect.errors import refuse_outside
from idiolect.parts.average import average

__all__ = ["hypernetwork"]

NAME = "hypernetwork"


def made(phi: Slot, embeddings: Tensor) -> Flat:
    """Returns the models h(v; phi) of embeddings [C, e], stacked."""
    z = embeddings
    for layer in phi["hidden"].values():
        z = F.relu(F.linear(z, layer["weight"], layer["bias"]))  # [C, width]
    return {n: bias + torch.tensordot(z, phi["weights"][n], 1) for n, bias in phi["biases"].items()}


def first_embedding(seed: int, client: int, like: Tensor) -> Tensor:
    """Returns the embedding of a client that the server has not heard from, from N(0, 1)."""
    generator = torch.Generator().manual_seed(derive(seed, f"{NAME} embedding", client))
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)


@keeps_options
def hypernetwork(learning_rate: float = 0.01, embedding: int = 13, width: int = 100, depth: int = 3) -> Part:
    """Sends each client the model that the hypernetwork makes for it, and learns from how its training changed that.

    Layers that the client keeps are not made: with private heads this is pFedHN-PC.

    Args:
        learning_rate: alpha >= 0, of hypernetwork and embeddings.
        embedding: e >= 1, numbers in an embedding; the paper takes 1 + N/4 for N clients, which is 13 for 50.
        width: >= 1, of the hidden layers.
        depth: >= 1, hidden layers.

    Deviations: all clients of a round move the hypernetwork together, by the mean of their steps with the run's weights
    p_i; in the paper each round has one client.  The last layers begin with weights of 0 and the initial model as
    their bias, so that all clients begin there; hidden layers begin as He's.  A newcomer is sent the model of the mean
    embedding and trains it for its round; the paper trains an embedding for it, over many rounds.  The
    server's shared model is the mean of the uploads; no client trains from it.  Running statistics are shared as the
    setting ``buffers`` says.
    """
    refuse_outside("learning_rate (alpha)", learning_rate, 0)
    refuse_outside("embedding (e)", embedding, 1)
    refuse_outside("width", width, 1)
    refuse_outside("depth", depth, 1)
    plain = average()

    def init_server(shared: Flat, initial: Initial) -> Slot:
        like = next(iter(shared.values()))
        hidden, into = {}, embedding
        for layer in range(1, depth + 1):
            weight = initial.spread(f"{NAME} {layer}", (width, into)) * math.sqrt(6 / into)
            hidden[f"layer {layer}"] = {"weight": weight, "bias": like.new_zeros(width)}
            into = width
        heads = {name: leaf.new_zeros(width, *leaf.shape) for name, leaf in shared.items()}
        return {"hidden": hidden, "weights": heads, "biases": dict(shared)}

    def init_kept(initial: Initial, population: int) -> Slot:
        """How far an embedding moved since it was drawn."""
        return {"moved": next(iter(initial.params.values())).new_zeros(embedding)}

    def embeddings(clients: Sequence[int], view: ServerView) -> Tensor:
        moved: Tensor = view.kept.rows(clients)["moved"]
        first = [first_embedding(view.seed, client, moved[0]) for client in clients]
        return torch.stack(first) + moved

    def personal_download(clients: Sequence[int], view: ServerView) -> Slot:
        heard = view.kept.clients
        if view.clock.newcomer and heard:
            vectors = embeddings(heard, view).mean(0).expand(len(clients), -1)
        else:
            vectors = embeddings(clients, view)
        return {"params": made(view.slot, vectors)}

    def keep(uploaded: Uploaded, view: ServerView) -> tuple[Slot, Slot]:
        vectors = embeddings(uploaded.clients, view)
        differentiated: Any = torch.func.vjp(made, view.slot, vectors)
        models, pull = differentiated
        gap = {n: models[n] - trained for n, trained in uploaded.value.items()}  # theta - theta~
        share = uploaded.weight / uploaded.weight.sum()
        weighed = {n: torch.einsum("c,c...->c...", share, leaf) for n, leaf in gap.items()}
        for_network, _ = pull(weighed)
        _, for_embeddings = pull(gap)
        slot = tree_map(lambda p, g: p - learning_rate * g, view.slot, for_network)
        moved = view.kept.rows(uploaded.clients)["moved"] - learning_rate * for_embeddings
        return {"moved": moved}, slot

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        assert plain.predictors is not None
        found: dict[str, Predictor] = plain.predictors(view, results)
        found.pop("global", None)  # what the client was sent, which is its own
        return {**found, "composed": Predictor.of(view.current)}

    return plain._replace(
        name=NAME,
        init_server=init_server,
        init_kept=init_kept,
        keep=keep,
        personal_download=personal_download,
        scored_with_download=True,
        predictors=predictors,
        roles=("server update", "uploaded models"),
        headline="composed",
        gives_way=False,
    )
