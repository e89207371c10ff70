"""FedCP: separating feature information by a conditional policy."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import conditional_policy

__all__ = ["fedcp"]


def fedcp(weight: float = 0.1) -> Method:
    """A policy decides, feature by feature, what goes to the shared head and what to the client's own.

    The policy is a plain softmax; released code draws it with Gumbel noise, also while it evaluates.

    Zhang, Hua, Wang, Song, Xue, Ma, Guan, KDD 2023, https://arxiv.org/abs/2307.01217

    Args:
        weight: lambda >= 0 of the discrepancy between local and received features; 5 in the paper, whose kernels have
            fixed bandwidths.
    """
    return chain(conditional_policy(weight), name="fedcp")


presets = {"paper": {"weight": 5.0}}
