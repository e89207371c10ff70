"""Critical parameters: a client shares those it is sensitive to only with clients sensitive to the same ones (FedCAC).

c_i = |(theta_i^+ - theta_i) o theta_i^+|                    theta_i as received, theta_i^+ as trained
M_i = 1 where c_i is among the largest share tau of its tensor, 0 elsewhere;    n_i = ||M_i||_1
o_ij = 1 - ||M_i - M_j||_1 / (2 n_i)
S_i = {i} and every j with o_ij >= mean(o) + t / beta (max(o) - mean(o)),    in the round t = 1, 2, ...
theta_i = M_i o mean_{j in S_i} theta_j^+  +  (1 - M_i) o sum_j p_j theta_j^+
Wu, Liu, Niu, Zhu, Tang, ICCV 2023, https://arxiv.org/abs/2309.11103
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Clock,
    Flat,
    Initial,
    Message,
    Part,
    Predictor,
    Results,
    ServerView,
    Slot,
    Uploaded,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import zeros_like
from idiolect.errors import refuse_outside
from idiolect.parts.average import average
from idiolect.parts.model_vectors import as_models, as_vectors

__all__ = ["critical", "critical_parameters", "overlaps"]


def critical(received: Tensor, trained: Tensor, share: float) -> Tensor:
    """Returns 1 for the parameters of a tensor that the client is most sensitive to, 0 for the others.

    A parameter that did not move, or is 0, is never critical.
    """
    sensitivity = ((trained - received) * trained).abs()
    count = int(share * sensitivity.numel())
    if count == 0:
        return torch.zeros_like(trained)
    least = sensitivity.flatten().topk(count).values.amin()
    return ((sensitivity >= least) & (sensitivity > 0)).to(trained)


def overlaps(ours: Tensor, theirs: Tensor) -> Tensor:
    """Returns o_ij [C, B] of the masks [C, P] and [B, P] of several clients."""
    counts, others = ours.sum(1, keepdim=True), theirs.sum(1)
    apart = counts + others - 2 * ours @ theirs.T
    return 1 - apart / (2 * counts.clamp(min=1))


@keeps_options
def critical_parameters(share: float = 0.5, rounds: float = 20) -> Part:
    """Sends each client the mean of all models, and in place of its critical parameters that of like clients.

    Args:
        share: tau in [0, 1] of every tensor that is critical; 0 is FedAvg.
        rounds: beta > 0, the round after which a client shares its critical parameters with nobody else.

    Deviations: the mean and the largest overlap are those of the clients of the last round.  Where only some clients
    take part in a round, the last upload of every other client counts in the mean of critical parameters; the paper's
    all take part.  A client not heard from is sent the shared model.  The mask M_i is counted as P scalars; packed, it
    would be P bits.  Running statistics are shared as the setting ``buffers`` says.
    """
    refuse_outside("share (tau)", share, 0, 1)
    refuse_outside("rounds (beta)", rounds, 1e-12)
    plain = average()

    def init_server(shared: Flat, initial: Initial) -> Flat:
        return {"threshold": next(iter(shared.values())).new_ones(())}

    def init_kept(initial: Initial, population: int) -> Slot:
        return {"model": dict(initial.params), "critical": zeros_like(initial.params)}

    def upload(results: Results, view: View) -> Message:
        trained = results[UPLOAD].params["model"]
        received = view.origin.params
        masks = {name: critical(received[name], trained[name], share) for name in received}
        return Message(
            {"model": {name: trained[name] for name in received}, "critical": masks}, view.facts.weight
        )

    def merge(params: Flat, slot: Slot, mean: Slot, clock: Clock) -> tuple[Flat, Slot]:
        return {**params, **mean["model"]}, slot

    def keep(uploaded: Uploaded, view: ServerView) -> tuple[Slot, Slot]:
        masks = as_vectors(uploaded.value["critical"])
        others = ~torch.eye(len(masks), dtype=torch.bool, device=masks.device)
        found = overlaps(masks, masks)[others]
        if not len(found):
            return uploaded.value, view.slot
        coming = view.clock.round + 2  # the round that is sent next, counted from 1
        threshold = torch.lerp(found.mean(), found.max(), coming / rounds)
        return uploaded.value, {"threshold": threshold}

    def personal_download(clients: Sequence[int], view: ServerView) -> Slot:
        kept = view.kept.rows(clients)
        masks = as_vectors(kept["critical"])  # [C, P]
        numbers = torch.tensor(clients, device=masks.device)
        total, together = masks.new_zeros(len(masks)), torch.zeros_like(masks)
        for heard, rows in view.kept.blocks():
            itself = numbers[:, None] == torch.tensor(heard, device=masks.device)
            like = overlaps(masks, as_vectors(rows["critical"])) >= view.slot["threshold"]
            chosen = (like | itself).to(masks)  # S_i, [C, B]
            total, together = total + chosen.sum(1), together + chosen @ as_vectors(rows["model"])
        near = as_models(together / total.clamp(min=1)[:, None], view.shared.params)
        mixed = {
            name: torch.where(mask > 0, near[name], view.shared.params[name])
            for name, mask in kept["critical"].items()
        }
        return {"params": mixed}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        assert plain.predictors is not None
        found: dict[str, Predictor] = plain.predictors(view, results)
        found.pop("global", None)  # what the client received is its own
        return {**found, "composed": Predictor.of(view.current)}

    return plain._replace(
        name="critical_parameters",
        init_server=init_server,
        init_kept=init_kept,
        upload=upload,
        merge=merge,
        keep=keep,
        personal_download=personal_download,
        predictors=predictors,
        scored_with_download=True,
        needs_whole=True,
        roles=("server update", "uploaded models", "composed predictor"),
        headline="composed",
        gives_way=False,
    )
