"""pFedSim: similarity-aware model aggregation."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import similarity_mixture

__all__ = ["pfedsim"]


def pfedsim(generalisation: float = 0.5) -> Method:
    """FedAvg for some rounds, then classifiers of the clients' own over extractors mixed from clients like them.

    The similarity of two clients is that of their last uploads; released code measures it only in rounds that both are
    selected for.

    Tan, Zhou, Liu, Wang, Yu 2023, https://arxiv.org/abs/2305.15706

    Args:
        generalisation: in [0, 1], the share of the rounds that are FedAvg's.
    """
    return chain(similarity_mixture(generalisation), name="pfedsim")


presets = {"paper": {"generalisation": 0.5}}
