"""FedFu: feature fusion of received and local extractors."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, feature_fusion

__all__ = ["fedfu"]


def fedfu(operator: str = "multi", initial_share: float = 0.1, fixed: bool = False) -> Method:
    """The classifier sees a fusion of the features of the received extractor and of the one in training.

    Yao et al., ICIP 2019.

    Args:
        operator: ``multi``, ``single`` or ``conv``.
        initial_share: of the received features.
        fixed: keeps the fusion as it starts; with share 0 it is FedAvg.
    """
    return chain(average(), feature_fusion(operator, initial_share, fixed), name="fedfu")
