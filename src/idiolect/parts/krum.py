"""Krum and Multi-Krum: only uploads that have many others near them count.

s(k) = sum of ||u_k - u_l||^2 over the n - f - 2 uploads u_l nearest to u_k       n uploads, f of them hostile
Krum        the upload with the smallest s
Multi-Krum  the mean of the m uploads with the smallest s
Blanchard, El Mhamdi, Guerraoui, Stainer, NeurIPS 2017, section 4, https://arxiv.org/abs/1703.02757
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import GatherView, Messages, Part
from idiolect.core.part import keeps_options
from idiolect.errors import UserError, refuse_outside
from idiolect.parts.model_vectors import squared_distances
from idiolect.parts.upload_vectors import hostile_count, reweighted

__all__ = ["krum", "multi_krum"]


def scores(updates: Tensor, hostile: int) -> Tensor:
    """s(k) of updates [C, P], over at least one other."""
    count = len(updates)
    apart = squared_distances(updates, updates)
    apart = apart.masked_fill(torch.eye(count, dtype=torch.bool, device=updates.device), torch.inf)
    return apart.sort(1).values[:, : max(count - hostile - 2, 1)].sum(1)


def nearest(updates: Tensor, weight: Tensor, hostile: int, selected: int) -> Tensor:
    """Returns weights that are 0 but for the ``selected`` uploads with the smallest s."""
    if len(updates) <= selected:
        return weight
    found = scores(updates, hostile)
    return torch.where(found <= found.sort().values[selected - 1], weight, 0)


@keeps_options
def krum(share: float = 0.2) -> Part:
    """Takes the one upload that is nearest to most others in the place of the mean.

    The model and its running statistics are one vector u; what another part sends is a vector of its own.

    Args:
        share: f / n, at least 0 and below 0.5, of the uploads of a round that are taken to be hostile.

    Deviations: updates in the place of gradients; uploads of the same s all count, so that their order does not matter.
    The paper asks for n >= 2 f + 3; with fewer uploads each is compared with one other at least.
    """
    _refuse_share(share)

    def gather(messages: Messages, view: GatherView) -> Messages:
        return reweighted(messages, view, lambda u, w: nearest(u, w, hostile_count(share, len(w)), 1))

    return Part("krum", gather=gather, robust=True, roles=("robust mean",))


@keeps_options
def multi_krum(share: float = 0.2, selected: int | None = None) -> Part:
    """Averages the uploads that are nearest to most others, and leaves out the rest.

    The model and its running statistics are one vector u; what another part sends is a vector of its own.

    Args:
        share: f / n, at least 0 and below 0.5, of the uploads of a round that are taken to be hostile.
        selected: m >= 1; None is n - f, and then a share of 0 is the plain mean.

    Deviations: as for ``krum``.  The uploads that count keep the weights of the run.
    """
    _refuse_share(share)
    if selected is not None:
        refuse_outside("selected (m)", selected, 1)

    def gather(messages: Messages, view: GatherView) -> Messages:
        def weights(updates: Tensor, weight: Tensor) -> Tensor:
            hostile = hostile_count(share, len(weight))
            return nearest(updates, weight, hostile, selected or len(weight) - hostile)

        return reweighted(messages, view, weights)

    return Part("multi_krum", gather=gather, robust=True, roles=("robust mean",))


def _refuse_share(share: float) -> None:
    refuse_outside("share (f / n)", share, 0, 0.5)
    if share == 0.5:
        raise UserError(
            "share (f / n) must be below 0.5, got 0.5: hostile uploads must be fewer than the others"
        )
