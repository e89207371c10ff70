"""Coordinate-wise trimmed mean of the uploads.

theta_j = mean of { theta_j^k : k in S_t } without the b largest and the b smallest, for every number j;  b = beta |S_t|
Yin, Chen, Ramchandran, Bartlett, ICML 2018, definition 2, https://arxiv.org/abs/1803.01498
"""

from __future__ import annotations

from torch import Tensor

from idiolect.core import GatherView, Messages, Part
from idiolect.core.part import keeps_options
from idiolect.errors import UserError, refuse_outside
from idiolect.parts.upload_vectors import coordinate_wise, hostile_count

__all__ = ["trimmed_mean"]


@keeps_options
def trimmed_mean(share: float = 0.2) -> Part:
    """Leaves the largest and the smallest values of every single number out of the mean of the uploads.

    Every message is merged so: the model, running statistics, and what other parts send, such as SCAFFOLD's controls.

    Args:
        share: beta, at least 0 and below 0.5, of the uploads of a round at either end, rounded down; it should be at
            least the share of hostile ones, which in a round may be larger than among all clients.  0, or a round of
            fewer than 1 / beta uploads, is the plain mean.

    Deviations: models in the place of gradients.  Where values are left out, every client counts once, whatever the
    weights of the run.
    """
    refuse_outside("share (beta)", share, 0, 0.5)
    if share == 0.5:
        raise UserError("share (beta) must be below 0.5, got 0.5: nothing would be left; use median")

    def trimmed(values: Tensor) -> Tensor:
        cut = hostile_count(share, len(values))
        return values.sort(0).values[cut : len(values) - cut].mean(0)

    def gather(messages: Messages, view: GatherView) -> Messages:
        cut = {name for name, (_, weight) in messages.items() if hostile_count(share, len(weight))}
        return {**messages, **coordinate_wise({name: messages[name] for name in cut}, trimmed)}

    return Part("trimmed_mean", gather=gather, robust=True, roles=("robust mean",))
