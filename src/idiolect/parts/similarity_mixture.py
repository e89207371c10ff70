"""Similarity mixture: after a phase of FedAvg each client gets the extractors of those with like classifiers (pFedSim).

s_ij = max(0, mean_c cos(phi_ic, phi_jc)),     Phi_ij = -ln(1 - s_ij),    s_ii = 0.9999
theta_i = sum_j Phi_ij theta_j / sum_j Phi_ij,      phi_i stays the client's own         phi_ic: the row of class c
Tan, Zhou, Liu, Wang, Yu 2023, https://arxiv.org/abs/2305.15706
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Clock,
    Flat,
    Initial,
    Model,
    Part,
    Predictor,
    Results,
    Scene,
    ServerView,
    Slot,
    Structure,
    Uploaded,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import tree_map, where
from idiolect.errors import UserError, refuse_outside
from idiolect.parts.average import average
from idiolect.parts.model_vectors import as_models, as_vectors

__all__ = ["classifier_similarity", "similarity_mixture"]

NAME = "similarity_mixture"
LIKEST = 0.9999  # the similarity of a client to itself, and the largest there is


def classifier_similarity(ours: Tensor, theirs: Tensor) -> Tensor:
    """Returns s [C, B] in [0, 0.9999], from classifiers [C, K, d] and [B, K, d]."""
    cosines = torch.einsum("ikd,jkd->ij", F.normalize(ours, dim=-1), F.normalize(theirs, dim=-1))
    return (cosines / ours.shape[1]).clamp(0, LIKEST)


@keeps_options
def similarity_mixture(generalisation: float = 0.5) -> Part:
    """FedAvg at first; then the server mixes extractors for each client, which trains on with a classifier of its own.

    Args:
        generalisation: in [0, 1], the share of the rounds in the first phase, which has its floor.

    Deviations: similarities are computed from the last uploads of the second phase of all clients, whichever round they
    are from.  A client that did not yet take part in the second phase is sent the shared model, which stays the mean of
    the uploads, and is scored with it.  A similarity to others is at most that to oneself.  Running statistics are
    shared as the setting ``buffers`` says.
    """
    refuse_outside("generalisation", generalisation, 0, 1)
    plain = average()

    def personal(clock: Clock) -> bool:
        first = math.floor(generalisation * clock.rounds + 1e-9)
        return min(clock.round, clock.rounds - 1) >= first

    def check(structure: Structure, scene: Scene) -> None:
        if not structure.linear_head:
            raise UserError(f"{NAME} needs a network whose classifier is a single linear layer and trained")

    def init_client(initial: Initial) -> Slot:
        zero = torch.zeros_like(next(iter(initial.params.values())).sum())
        return {"model": dict(initial.params), "seen": zero}

    def init_kept(initial: Initial, population: int) -> Slot:
        return init_client(initial)

    def keep(uploaded: Uploaded, view: ServerView) -> tuple[Slot, Slot]:
        seen = torch.full_like(uploaded.weight, float(personal(view.clock)))
        return {"model": uploaded.value, "seen": seen}, view.slot

    def personal_download(clients: Sequence[int], view: ServerView) -> Slot:
        structure, own = view.task.structure, view.kept.rows(clients)
        body = [n for n in structure.params if structure.unit_of[n] < structure.n_units - 1]
        numbers = torch.tensor(clients, device=own["seen"].device)
        total, pulled = torch.zeros_like(own["seen"]), torch.zeros_like(as_vectors(_only(own["model"], body)))
        for others, rows in view.kept.blocks():
            alike = classifier_similarity(
                own["model"][structure.classifier], rows["model"][structure.classifier]
            )
            same = numbers[:, None] == torch.tensor(others, device=numbers.device)
            share = -torch.log1p(-torch.where(same, LIKEST, alike)) * rows["seen"]  # Phi, [C, B]
            total, pulled = total + share.sum(1), pulled + share @ as_vectors(_only(rows["model"], body))
        like = _only(view.shared.params, body)
        mixed = {**own["model"], **as_models(pulled / total.clamp(min=1e-12)[:, None], like)}
        shared = tree_map(lambda leaf: leaf.expand(len(clients), *leaf.shape), view.shared.params)
        return {"params": _chosen(own["seen"], {name: mixed[name] for name in shared}, shared)}

    def finish(results: Results, view: View) -> Slot:
        if not personal(view.clock):
            return view.private
        trained = results[UPLOAD].params["model"]
        return {
            "model": {name: trained[name] for name in view.private["model"]},
            "seen": view.private["seen"] + 1,
        }

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        assert plain.predictors is not None
        found: dict[str, Predictor] = plain.predictors(view, results)
        own = view.current.params
        if not results:
            own = where(view.private["seen"] > 0, view.private["model"], own)
        return {**found, "composed": Predictor.of(Model(own, view.current.buffers))}

    return plain._replace(
        name=NAME,
        check=check,
        init_client=init_client,
        init_kept=init_kept,
        keep=keep,
        personal_download=personal_download,
        finish=finish,
        predictors=predictors,
        needs_head=True,
        needs_whole=True,
        roles=("server update", "composed predictor"),
        headline="composed",
        gives_way=False,
    )


def _only(model: Flat, names: Sequence[str]) -> Flat:
    return {name: model[name] for name in names}


def _chosen(seen: Tensor, own: Flat, shared: Flat) -> Flat:
    """Returns stacked models, each client's own where it was seen, and the shared one of the others."""

    def one(ours: Tensor, theirs: Tensor) -> Tensor:
        return torch.where(seen.reshape(-1, *[1] * (ours.ndim - 1)) > 0, ours, theirs)

    return tree_map(one, own, shared)
