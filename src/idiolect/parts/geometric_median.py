"""Geometric median of the uploads by the smoothed Weiszfeld algorithm (RFA).

z ~ argmin_z sum_k p_k ||z - u_k||
z <- sum_k b_k u_k / sum_k b_k,   b_k = p_k / max(nu, ||z - u_k||),   R times, from z = sum_k p_k u_k
Pillutla, Kakade, Harchaoui, IEEE Transactions on Signal Processing 2022, https://arxiv.org/abs/1912.13445
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import GatherView, Messages, Part
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside
from idiolect.parts.upload_vectors import reweighted

__all__ = ["geometric_median"]


@keeps_options
def geometric_median(steps: int = 4, smoothing: float = 1e-5) -> Part:
    """Puts the point whose distances to all uploads have the least sum in the place of their mean.

    The model and its running statistics are one vector u; what another part sends is a vector of its own.

    Of hostile updates with a share h of the weight about (h / (1 - h))^(R + 1) of their length is left: a thousandth of
    that of a fifth, after the four steps.  Where it may be of any size, take more steps or put ``norm_bound`` before.

    Args:
        steps: R >= 0 of the algorithm; 0 is the plain mean.
        smoothing: nu > 0, below which distances do not matter.

    Deviations: always R steps; the authors' code, whose R and nu are the defaults, also stops once the sum falls by
    less than a millionth.
    """
    refuse_outside("steps (R)", steps, 0)
    refuse_outside("smoothing (nu)", smoothing, 1e-300)

    def weights(updates: Tensor, weight: Tensor) -> Tensor:
        found = weight
        for _ in range(steps):
            middle = (found / found.sum()).to(updates) @ updates
            apart = torch.linalg.vector_norm(updates - middle, dim=1)
            found = weight / apart.clamp(min=smoothing)
        return found

    def gather(messages: Messages, view: GatherView) -> Messages:
        return reweighted(messages, view, weights)

    return Part("geometric_median", gather=gather, robust=True, roles=("robust mean",))
