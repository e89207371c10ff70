"""A Dirichlet mixture of classes for each client.

    d_k ~ Dir(alpha 1_C)

Li et al. (MAP), IEEE TKDE 2024, table 3 (alpha = 0.5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from idiolect.partition.class_proportions import partition_by_proportions
from idiolect.partition.labelled_rows import open_pool
from idiolect.partition.option_checks import check_real
from idiolect.partition.partition import Partition

__all__ = ["dirichlet_client"]


def dirichlet_client(
    labels: ArrayLike,
    n_clients: int,
    *,
    seed: int,
    alpha: float = 0.5,
    sigma: float = 0.3,
    min_samples: int = 5,
) -> Partition:
    """Every client draws its own mixture of the classes.

    Args:
        labels: the label of each row.
        n_clients: K; fewer remain where a client falls below `min_samples`.
        seed: decides the mixtures and sizes.
        alpha: concentration, in [0.0001, 1e6]; small gives few classes to a client, large gives all alike.
        sigma: spread of the clients' sizes, in [0, 10] (0.3 in MAP's code; 0 in FedPHP's).
        min_samples: a client with fewer rows is removed and reported.

    Deviations: as for `map_incomplete`.
    """
    pool = open_pool("dirichlet_client", labels, n_clients, seed)
    check_real("dirichlet_client", "alpha", alpha, 1e-4, 1e6)
    concentration = np.full(pool.classes.size, float(alpha))
    return partition_by_proportions(
        pool,
        lambda: pool.random.dirichlet(concentration, size=n_clients),
        sigma=sigma,
        min_samples=min_samples,
    )
