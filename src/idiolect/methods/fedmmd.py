"""FedMMD: two-stream federated learning with an MMD constraint."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, received_teacher

__all__ = ["fedmmd"]


def fedmmd(weight: float = 0.1) -> Method:
    """FedAvg whose local features stay near those of the received model.

    Yao, Huang, Sun, VCIP 2018.

    Args:
        weight: lambda >= 0 of MMD^2; 0.1 in the paper.
    """
    return chain(average(), received_teacher("mmd", weight), name="fedmmd")


presets = {"paper": {"weight": 0.1}}
