"""FedCAC: federated learning with cautiously aggressive collaboration."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import critical_parameters

__all__ = ["fedcac"]


def fedcac(share: float = 0.5, rounds: float = 20) -> Method:
    """All clients share the parameters that they are not sensitive to, and only like clients share the others.

    Wu, Liu, Niu, Zhu, Tang, ICCV 2023, https://arxiv.org/abs/2309.11103

    Args:
        share: tau in [0, 1], of the parameters of every tensor that are critical.
        rounds: beta > 0, the round after which critical parameters are shared with nobody else; the fewer rounds a
            run has, the smaller.
    """
    return chain(critical_parameters(share, rounds), name="fedcac")


presets = {"official": {"share": 0.5, "rounds": 100}}
