"""Norm bounding: an upload far from what was sent is pulled back before the mean.

u_k <- u_k min(1, M / ||u_k||)                           u_k = theta_t^k - theta_t, the client's update
Sun, Kairouz, Suresh, McMahan 2019, section 4, https://arxiv.org/abs/1911.07963
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import GatherView, Messages, Part
from idiolect.core.part import keeps_options
from idiolect.core.trees import tree_map
from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.parts.upload_vectors import as_updates, half_way, together

__all__ = ["norm_bound"]


@keeps_options
def norm_bound(bound: float | None = 1.0, unit: str = "median") -> Part:
    """Shortens updates that are longer than a bound; their directions stay, so that hostile ones still pull.

    The model and its running statistics are one vector u; what another part sends is a vector of its own.  It can stand
    before a robust mean: ``norm_bound + median``.

    Args:
        bound: M > 0, in the unit; None is no bound, and the plain mean.
        unit: ``median`` of the norms of the round's updates, of each vector by itself; or ``absolute``, one for all
            vectors.

    Deviations: the paper's bound is absolute, and the same in all rounds; that of ``median`` needs no knowledge of the
    network, and fewer than half of the uploads cannot raise it beyond the norms of the others.
    """
    if bound is not None:
        refuse_outside("bound (M)", bound, 1e-300)
    refuse_unknown_choice("unit", unit, ("median", "absolute"))

    def shortened(value: Tensor, origin: Tensor, scale: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        each = scale.to(value).reshape(-1, *[1] * (value.ndim - 1))
        return torch.where(each < 1, origin + each * (value - origin), value)

    def gather(messages: Messages, view: GatherView) -> Messages:
        if bound is None:
            return messages
        found = dict(messages)
        for names in together(messages, view):
            norms = torch.linalg.vector_norm(as_updates(messages, view, names), dim=1)
            most = bound * half_way(norms) if unit == "median" else torch.full_like(norms, bound)
            scale = torch.where(norms > most, most / norms, 1)
            for name in names:
                value, weight = messages[name]
                bounded = tree_map(
                    lambda leaf, origin: shortened(leaf, origin, scale),  # noqa: B023
                    value,
                    view.origin[name],
                )
                found[name] = (bounded, weight)
        return found

    return Part("norm_bound", gather=gather, robust=True)
