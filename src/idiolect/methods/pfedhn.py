"""pFedHN: personalised federated learning using hypernetworks."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import hypernetwork

__all__ = ["pfedhn"]


def pfedhn(learning_rate: float = 0.01, embedding: int = 13, width: int = 100, depth: int = 3) -> Method:
    """The server has an embedding of each client and a network that makes the client's model from it.

    Shamsian, Navon, Fetaya, Chechik, ICML 2021, https://arxiv.org/abs/2103.04628

    Args:
        learning_rate: alpha >= 0, the server's, of hypernetwork and embeddings.
        embedding: e >= 1, numbers in the embedding of a client.
        width: >= 1, of the hypernetwork's hidden layers.
        depth: >= 1, its hidden layers.
    """
    return chain(hypernetwork(learning_rate, embedding, width, depth), name="pfedhn")
