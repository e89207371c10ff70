"""Hostile uploads: some clients train honestly and send something else.

    u' = -f u               sign flip       Li, Xu, Chen, Giannakis, Ling, "RSA", AAAI 2019, https://arxiv.org/abs/1811.03761
    u' = f u                scaling         Bagdasaryan et al., AISTATS 2020, https://arxiv.org/abs/1807.00459
    u' = u + s rms(u) e     upload noise    e normal

u is the client's update: what it sends less what a client that has learnt nothing would send, so the trained model less
the received one, or the change of a control variate.  Every message is changed so.  Running statistics are sent as they
are, because a variance below 0 ends a run and shows nothing.  Private state is that of honest work.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from idiolect.core.context import Messages
from idiolect.core.seeds import derive
from idiolect.core.trees import Slot, tree_leaves, with_leaves
from idiolect.errors import UserError, refuse_outside
from idiolect.federation.disturbances.disturbance import (
    Disturbance,
    DisturbedData,
    SentUploads,
    drawn_clients,
    drawn_in_round,
    refuse_share,
)
from idiolect.federation.disturbances.drift import first_round
from idiolect.federation.federation import Federation

__all__ = ["scaling", "sign_flip", "upload_noise"]

Change = Callable[
    [Tensor, np.random.Generator], Tensor
]  # (update [P], random numbers) -> what is sent in its place


def sign_flip(share: float = 0.2, factor: float = 4.0, at: float = 0.0, rate: float = 1.0) -> Disturbance:
    """Hostile clients turn their updates round, and lengthen them.

    Args:
        share: of the clients that are hostile, drawn by the seed of the data; above 0 and at most 1.
        factor: by which the update turned round is longer than the honest one, at least 0; 0 sends back what was
            received.  With 1 a fifth of hostile clients does little more than slow an average down.
        at: where in the run they begin, as a part of the rounds; at least 0 and below 1.
        rate: probability that a hostile client attacks in a round that it takes part in; at least 0 and at most 1.
    """
    refuse_outside("factor of sign_flip", factor, 0)
    return _hostile("sign_flip", share, at, rate, lambda update, random: -factor * update)


def scaling(share: float = 0.2, factor: float = 10.0, at: float = 0.0, rate: float = 1.0) -> Disturbance:
    """Hostile clients lengthen their updates, so that theirs count for many.

    Args:
        share: of the clients that are hostile, drawn by the seed of the data; above 0 and at most 1.
        factor: by which their updates are longer, at least 0.
        at: where in the run they begin, as a part of the rounds; at least 0 and below 1.
        rate: probability that a hostile client attacks in a round that it takes part in; at least 0 and at most 1.
    """
    refuse_outside("factor of scaling", factor, 0)
    return _hostile("scaling", share, at, rate, lambda update, random: factor * update)


def upload_noise(share: float = 0.2, scale: float = 3.0, at: float = 0.0, rate: float = 1.0) -> Disturbance:
    """Hostile clients add normal noise to their updates.

    Args:
        share: of the clients that are hostile, drawn by the seed of the data; above 0 and at most 1.
        scale: s >= 0, the noise's deviation as a multiple of the root mean square of the update's numbers, message by
            message; the noise is s times as long as the update.
        at: where in the run they begin, as a part of the rounds; at least 0 and below 1.
        rate: probability that a hostile client attacks in a round that it takes part in; at least 0 and at most 1.
    """
    refuse_outside("scale of upload_noise", scale, 0)

    def noisy(update: Tensor, random: np.random.Generator) -> Tensor:
        drawn = torch.from_numpy(random.standard_normal(len(update))).to(update)
        return update + scale * update.square().mean().sqrt() * drawn

    return _hostile("upload_noise", share, at, rate, noisy)


def _hostile(name: str, share: float, at: float, rate: float, change: Change) -> Disturbance:
    """Returns the disturbance in which hostile clients send what ``change`` makes of their updates."""
    refuse_share(f"share of {name}", share)
    refuse_outside(f"at of {name}", at, 0, 1)
    if at == 1:
        raise UserError(f"at of {name} must be below 1: no round would see it")
    refuse_outside(f"rate of {name}", rate, 0, 1)

    def data(federation: Federation, seed: int, rounds: int) -> DisturbedData:
        """Names the hostile clients; their data are as they were."""
        return DisturbedData(federation, drawn_clients(share, federation.population, seed))

    def uploads(sent: SentUploads, seed: int) -> Messages:
        if sent.round < first_round(at, sent.rounds):
            return sent.messages
        attacking = drawn_in_round(rate, sent.round, set(sent.clients) & set(sent.marked), seed)
        found = dict(sent.messages)
        for place, client in enumerate(sent.clients):
            if client in attacking:
                for name in found.keys() - {"buffers"}:
                    random = np.random.default_rng(derive(seed, "upload", sent.round, client, name))
                    value, weight = found[name]
                    found[name] = (_changed(value, sent.origin[name], place, change, random), weight)
        return found

    return Disturbance(data=data, uploads=uploads)


def _statistics(value: Slot, within: bool = False) -> list[bool]:
    """Returns by leaf, in the order of ``tree_leaves``, whether it is one of the running statistics of a message.

    >>> _statistics({"second": {"params": {"w": 0}, "buffers": {"mean": 0, "var": 0}}})
    [False, True, True]
    """
    if isinstance(value, dict):
        return [
            one for name, below in value.items() for one in _statistics(below, within or name == "buffers")
        ]
    if isinstance(value, tuple | list):
        return [one for below in value for one in _statistics(below, within)]
    return [within]


def _changed(value: Slot, origin: Slot, place: int, change: Change, random: np.random.Generator) -> Slot:
    """Returns a stacked message in whose row ``place`` the update is changed.

    Whole numbers and running statistics stay as they are.
    """
    stacked, start, is_kept = tree_leaves(value), tree_leaves(origin), _statistics(value)
    numbers = [i for i, leaf in enumerate(stacked) if leaf.is_floating_point() and not is_kept[i]]
    if not numbers:
        return value
    update = torch.cat([(stacked[i][place] - start[i]).flatten() for i in numbers])
    pieces = change(update, random).split([start[i].numel() for i in numbers])
    for i, piece in zip(numbers, pieces, strict=True):
        stacked[i] = stacked[i].clone()
        stacked[i][place] = start[i] + piece.reshape(start[i].shape)
    return with_leaves(value, stacked)
