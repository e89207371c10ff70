"""Two clients without a class in common.

    client 0 holds the first C // 2 classes, client 1 the others (MNIST: 0-4 and 5-9)

Li et al. (MAP), IEEE TKDE 2024, figure 8.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from idiolect.errors import UserError
from idiolect.partition.labelled_rows import open_pool
from idiolect.partition.option_checks import check_whole
from idiolect.partition.partition import Partition

__all__ = ["two_client_demo"]


def two_client_demo(labels: ArrayLike, n_clients: int = 2, *, seed: int = 0) -> Partition:
    """One client holds the lower half of the classes, the other the upper half.

    Args:
        labels: the label of each row; at least two classes.
        n_clients: 2, nothing else.
        seed: without effect; nothing is drawn.

    Deviations: none.
    """
    check_whole("two_client_demo", "n_clients", n_clients, 2, 2)
    pool = open_pool("two_client_demo", labels, n_clients, seed)
    half = pool.classes.size // 2
    if half == 0:
        raise UserError("two_client_demo: labels hold a single class; at least 2 are needed")
    return Partition((np.concatenate(pool.rows_of_class[:half]), np.concatenate(pool.rows_of_class[half:])))
