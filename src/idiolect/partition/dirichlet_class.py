"""A Dirichlet mixture of clients for each class.

    q_c ~ Dir(alpha 1_K);   client u takes the next round(n_c q_cu) rows of class c

Divi et al. (PersFL), 2021, data split DS-2, https://arxiv.org/abs/2105.15191
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from idiolect.errors import UserError
from idiolect.partition.allocation import allocate_rows
from idiolect.partition.labelled_rows import open_pool
from idiolect.partition.option_checks import check_real, check_whole
from idiolect.partition.partition import Partition, RowNumbers

__all__ = ["dirichlet_class"]


def dirichlet_class(
    labels: ArrayLike, n_clients: int, *, seed: int, alpha: float = 0.9, min_samples: int = 1
) -> Partition:
    """Every class is divided in its own random proportions.

    Args:
        labels: the label of each row.
        n_clients: K (10 in the paper).
        seed: decides proportions and rows.
        alpha: concentration, in [0.0001, 1e6]; small gives each class to few clients.
        min_samples: at least 1; a client that by chance gets fewer rows is refused by name, never left out.

    Deviations: the published code takes the size of the first class for all classes; here n_c is each class's
    own.
    """
    pool = open_pool("dirichlet_class", labels, n_clients, seed)
    check_real("dirichlet_class", "alpha", alpha, 1e-4, 1e6)
    check_whole("dirichlet_class", "min_samples", min_samples, 1)
    fractions = pool.random.dirichlet(np.full(n_clients, float(alpha)), size=pool.classes.size)  # [C, K]
    counts = np.rint(fractions.T * pool.class_sizes).astype(np.int64)  # [K, C]
    clients, left = allocate_rows(pool.shuffled(), counts)
    _check_sizes(clients, min_samples)
    return Partition(tuple(clients), {"leftover of rounded shares": left})


def _check_sizes(clients: list[RowNumbers], min_samples: int) -> None:
    for number, rows in enumerate(clients):
        if rows.size < min_samples:
            raise UserError(
                f"dirichlet_class: client {number} drew {rows.size} samples, fewer than"
                f" min_samples={min_samples}; raise alpha, use fewer clients or another seed"
            )
