"""Deals k classes to each client from a sequence of random permutations of the classes.

    client i holds entries [i k, (i + 1) k) of pi_1 | pi_2 | ...

Li et al. (FedPHP), ECML-PKDD 2021. Every class is dealt once before any is dealt again, so all classes are
held by nearly equal numbers of clients.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["deal_classes"]


def deal_classes(
    random: np.random.Generator, n_classes: int, n_clients: int, k: int, allow_duplicates: bool
) -> NDArray[np.int64]:
    """How often each client holds each class, [K, C]; rows sum to k.

    A client that takes the last a entries of one permutation could meet the same class again in the next.
    Unless that is allowed, its other k - a entries are drawn uniformly from the C - a classes it does not
    hold, and the rest of the next permutation is shuffled. No draw is ever repeated.
    """
    held = np.zeros((n_clients, n_classes), dtype=np.int64)
    deck = random.permutation(n_classes)
    for client in range(n_clients):
        hand, deck = deck[:k], deck[k:]
        np.add.at(held[client], hand, 1)
        missing = k - hand.size
        if missing:
            allowed = np.arange(n_classes) if allow_duplicates else np.flatnonzero(held[client] == 0)
            drawn = random.permutation(allowed)[:missing]
            np.add.at(held[client], drawn, 1)
            deck = random.permutation(np.setdiff1d(np.arange(n_classes), drawn))
    return held
