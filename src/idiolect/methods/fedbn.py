"""FedBN: federated learning with local batch normalisation."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, private_normalisation

__all__ = ["fedbn"]


def fedbn() -> Method:
    """Everything is averaged but batch normalisation, of which every client keeps its own.

    On a network without batch normalisation it is FedAvg.  Layers are known by their kind, not by their names: code
    that looks for ``bn`` in names shares the normalisation of networks that call it otherwise, as residual networks
    do in their shortcuts.

    Li, Jiang, Zhang, Kamp, Dou, ICLR 2021, https://arxiv.org/abs/2102.07623
    """
    return chain(average(), private_normalisation(), name="fedbn")
