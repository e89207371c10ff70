"""Clients that miss classes, each a different number of them.

    c_k ~ U{2, ..., C};   d_kc = 1 / c_k on c_k classes drawn without replacement, else 0

Li et al. (MAP), IEEE TKDE 2024, tables 1 and 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from idiolect.errors import UserError
from idiolect.partition.class_proportions import partition_by_proportions
from idiolect.partition.labelled_rows import open_pool
from idiolect.partition.partition import Partition

__all__ = ["map_incomplete"]


def map_incomplete(
    labels: ArrayLike, n_clients: int, *, seed: int, sigma: float = 0.3, min_samples: int = 5
) -> Partition:
    """Every client holds a random number of random classes.

    Args:
        labels: the label of each row; at least two classes.
        n_clients: K (100 in the paper); fewer remain where a client falls below `min_samples`.
        seed: decides the classes and sizes.
        sigma: spread of the clients' sizes, in [0, 10] (0.3 in the published code; the paper does not mention
            it).
        min_samples: a client with fewer rows is removed and reported.

    Deviations: the paper does not treat a class that nobody drew; the draw is repeated at most 100 times, and
    a class still missing goes whole to one client.
    """
    pool = open_pool("map_incomplete", labels, n_clients, seed)
    n_classes = pool.classes.size
    if n_classes < 2:
        raise UserError("map_incomplete: labels hold a single class; at least 2 are needed")

    def draw() -> NDArray[np.float64]:
        proportions = np.zeros((n_clients, n_classes))
        for row, held in zip(
            proportions, pool.random.integers(2, n_classes, n_clients, endpoint=True), strict=True
        ):
            row[pool.random.permutation(n_classes)[:held]] = 1.0 / held
        return proportions

    return partition_by_proportions(pool, draw, sigma=sigma, min_samples=min_samples)
