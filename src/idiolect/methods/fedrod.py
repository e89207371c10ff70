"""FedROD: bridging generic and personalised federated learning."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, personal_head

__all__ = ["fedrod"]


def fedrod(gamma: float = 1.0, prior: str = "additive", head_init: str = "zero") -> Method:
    """A class-balanced shared model, and a private head that adds a correction for the client's own classes.

    Chen and Chao, ICLR 2022, https://arxiv.org/abs/2107.00778 (the linear variant)

    Args:
        gamma: >= 0 of the class prior; 0 makes the shared path FedAvg.
        prior: ``additive`` or ``multiplicative``.
        head_init: ``zero``, ``copy`` or ``fresh``.
    """
    return chain(average(), personal_head(gamma, prior, head_init), name="fedrod")


presets = {"paper": {"gamma": 1.0, "prior": "additive"}}
