"""FedCurv: overcoming forgetting in federated learning."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, curvature

__all__ = ["fedcurv"]


def fedcurv(weight: float = 0.1) -> Method:
    """FedAvg with a penalty on moving the parameters that matter to the other clients.

    Shoham et al. 2019, https://arxiv.org/abs/1910.07796

    Args:
        weight: lambda >= 0 of the Fisher-weighted penalty; on a small LeNet 0.01 does next to nothing and 10 diverges.
    """
    return chain(average(), curvature(weight), name="fedcurv")
