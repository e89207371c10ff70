"""FedALA: adaptive local aggregation."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import adaptive_aggregation, average

__all__ = ["fedala"]


def fedala(count: int = 1, share: float = 0.8, rate: float = 1.0) -> Method:
    """FedAvg whose clients learn, element by element, how much of the received classifier to take before they train.

    Zhang, Hua, Wang, Song, Xue, Ma, Guan, AAAI 2023, https://arxiv.org/abs/2212.01197

    Args:
        count: p >= 0, units with weights counted from the output.
        share: s >= 0 of the client's batches that the weights are learned on in a round.
        rate: eta >= 0 of the weights.
    """
    return chain(average(), adaptive_aggregation(count, share, rate), name="fedala")


presets = {"paper": {"count": 1, "share": 0.8, "rate": 1.0}}
