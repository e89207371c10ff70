"""Coordinate-wise median of the uploads.

theta_j = med{ theta_j^k : k in S_t }  for every number j; of an even number of uploads the mean of the middle two
Yin, Chen, Ramchandran, Bartlett, ICML 2018, definition 1, https://arxiv.org/abs/1803.01498
"""

from __future__ import annotations

from idiolect.core import GatherView, Messages, Part
from idiolect.core.part import keeps_options
from idiolect.parts.upload_vectors import coordinate_wise, half_way

__all__ = ["median"]


@keeps_options
def median() -> Part:
    """Puts the median of every single number in the place of the mean of the uploads.

    Fewer than half of the uploads cannot move a number beyond those of the others.  Every message is merged so: the
    model, running statistics, and what other parts send, such as SCAFFOLD's controls.

    Deviations: models in the place of gradients.  Every client counts once, whatever the weights of the run.
    """

    def gather(messages: Messages, view: GatherView) -> Messages:
        return coordinate_wise(messages, half_way)

    return Part("median", gather=gather, robust=True, roles=("robust mean",))
