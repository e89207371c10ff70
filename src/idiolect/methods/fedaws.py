"""FedAwS: federated averaging with spreadout."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, spread_out

__all__ = ["fedaws"]


def fedaws(margin: float = 0.9, steps: int = 20, learning_rate: float = 1.0, momentum: float = 0.9) -> Method:
    """FedAvg, then the server pushes the rows of the classifier apart.

    Yu et al., ICML 2020, https://arxiv.org/abs/2004.10342

    Args:
        margin: nu in [0, 1].
        steps, learning_rate, momentum: of the server's SGD.
    """
    return chain(average(), spread_out(margin, steps, learning_rate, momentum), name="fedaws")
