"""LG-FedAvg: local representations under shared upper layers."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, private_layers

__all__ = ["lg_fedavg"]


def lg_fedavg(count: int = 1, body_init: str = "shared") -> Method:
    """The last units are averaged; everything below them stays with the client, the reverse of FedPer.

    Liang et al. 2020, https://arxiv.org/abs/2001.01523; called FedLG in FedPHP.

    Args:
        count: units shared, counting from the output.
        body_init: ``shared`` or ``random``, of the private layers.

    It starts from scratch; the original first trains FedAvg.
    """
    return chain(average(), private_layers(count, body_init, side="input"), name="lg_fedavg")
