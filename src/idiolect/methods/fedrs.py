"""FedRS: federated learning with restricted softmax."""

from __future__ import annotations

from typing import Any

from idiolect.core import Method, chain
from idiolect.parts import average, restricted_softmax

__all__ = ["fedrs"]


def fedrs(alpha: float = 0.9, rule: str = "paper", min_count: int = 1) -> Method:
    """FedAvg whose local training scales down the logits of classes that the client lacks.

    Li and Zhan, KDD 2021; restated in MAP, eq. (8)-(9).

    Args:
        alpha: in [0, 1]; 1 is FedAvg.  MAP uses 0.9 and studies 0.1 to 0.9.
        rule: ``paper``, ``freq_max`` (the authors' code), ``freq`` (complete classes) or ``uniform``.
        min_count: training samples from which a class counts as observed.
    """
    return chain(average(), restricted_softmax(alpha, rule, min_count), name="fedrs")


presets: dict[str, dict[str, Any]] = {
    "paper": {"alpha": 0.9, "rule": "paper", "min_count": 1},
    "official": {"rule": "freq_max"},
}
