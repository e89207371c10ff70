"""FedGH: heterogeneous federated learning with a generalised global header."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import global_header

__all__ = ["fedgh"]


def fedgh(steps: int = 100, learning_rate: float = 0.03, body_init: str = "shared") -> Method:
    """Extractors stay on the clients; the server trains one header for all on the mean features of their classes.

    In the code of the authors the optimiser of the server's steps holds the parameters of the clients' network and
    not those of the header, so that the header stays as it was drawn; here it is trained.

    Yi, Wang, Liu, Shi, Yu, ACM MM 2023, https://arxiv.org/abs/2303.13137

    Args:
        steps: of the server in a round, each on all class means that arrived.
        learning_rate: of these steps.
        body_init: of the private extractors, ``shared`` or ``random``.
    """
    return chain(global_header(steps, learning_rate, body_init), name="fedgh")
