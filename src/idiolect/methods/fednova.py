"""FedNova: normalised averaging."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import normalised_average

__all__ = ["fednova"]


def fednova(proximal_weight: float = 0.0, global_momentum: float = 0.0) -> Method:
    """FedAvg of the clients' changes, each divided by the effective number of its local steps.

    Wang et al., NeurIPS 2020, https://arxiv.org/abs/2007.07481.  The scene's momentum is part of the normaliser.

    Args:
        proximal_weight: mu >= 0 of a proximal term, which the normaliser takes into account.
        global_momentum: gmf in [0, 1] on the server.
    """
    return chain(normalised_average(proximal_weight, global_momentum), name="fednova")
