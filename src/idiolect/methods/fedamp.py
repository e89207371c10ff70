"""FedAMP: federated attentive message passing."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import attentive_mixture, proximal

__all__ = ["fedamp"]


def fedamp(alpha: float = 1.0, sigma: float = 10.0, weight: float = 0.1) -> Method:
    """Each client trains a model of its own near the mixture of like models that the server makes for it.

    Huang et al., AAAI 2021, https://arxiv.org/abs/2007.03797.  A version that mixes the uploads of one cohort alone is
    the paper's only where all clients take part in every round; here the last upload of everybody counts.

    Args:
        alpha: alpha_k > 0, the length of the server's step.
        sigma: > 0, the squared distance over which the attraction of two models falls to 1/e.
        weight: lambda >= 0 of lambda / (2 alpha) ||w - u||^2; 1 in the paper.
    """
    near = weight / alpha if alpha > 0 else 0.0
    return chain(attentive_mixture(alpha, sigma), proximal(near), name="fedamp")


presets = {"paper": {"weight": 1.0}}
