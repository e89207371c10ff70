"""FedDBE: eliminating domain bias for federated learning in representation space, on top of FedAvg."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, representation_bias

__all__ = ["feddbe"]


def feddbe(weight: float = 50.0, momentum: float = 1.0) -> Method:
    """FedAvg whose clients add a vector of their own to the features, so that the shared ones agree in their mean.

    Zhang, Hua, Cao, Wang, Song, Xue, Ma, Guan, NeurIPS 2023, https://arxiv.org/abs/2311.14975

    Args:
        weight: kappa >= 0 of the mean's regularisation; 50 in the paper for its small convolutional network.
        momentum: mu in [0, 1] of the running mean; 1 in the paper for that network, so that each batch stands alone.
    """
    return chain(average(), representation_bias(weight, momentum), name="feddbe")


presets = {"paper": {"weight": 50.0, "momentum": 1.0}}
