"""FedLC: federated learning via logits calibration."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, calibrated_softmax

__all__ = ["fedlc"]


def fedlc(calibration: float = 1.0, denominator: str = "all") -> Method:
    """FedAvg whose clients train with margins that protect the classes of which they have few samples.

    The margins follow the counts of the client itself; code that takes the counts of all clients together
    gives every client the same margins, and so calibrates nothing between them.

    Zhang, Li, Li, Xu, Wu, Ding, Wu, ICML 2022, https://arxiv.org/abs/2209.00189

    Args:
        calibration: tau >= 0.
        denominator: ``all`` or ``others`` (the paper's formula).
    """
    return chain(average(), calibrated_softmax(calibration, denominator), name="fedlc")
