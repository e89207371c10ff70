"""Independent, identically distributed clients.

    shuffle the rows, cut them into K equal parts

McMahan et al., AISTATS 2017, section 3, https://arxiv.org/abs/1602.05629
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from idiolect.partition.labelled_rows import open_pool
from idiolect.partition.partition import Partition

__all__ = ["iid"]


def iid(labels: ArrayLike, n_clients: int, *, seed: int) -> Partition:
    """Every client is a random sample of the whole pool.

    Args:
        labels: the label of each row.
        n_clients: K, from 1 to the number of rows.
        seed: decides the shuffle.

    Deviations: where K does not divide the number of rows, sizes differ by one and nothing is dropped.
    """
    pool = open_pool("iid", labels, n_clients, seed)
    return Partition(tuple(np.array_split(pool.random.permutation(pool.n_rows), n_clients)))
