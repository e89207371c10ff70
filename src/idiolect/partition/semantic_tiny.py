"""Groups of disjoint classes, cut into clients of random size.

    the classes are shuffled and split into 10 groups;  the clients of a group have n_k ~ U{100, ..., 400} rows

Hahn et al. (SuPerFed), KDD 2022, first arXiv version, appendix, https://arxiv.org/abs/2109.07628
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from idiolect.partition.cluster_cutting import cut_clusters
from idiolect.partition.labelled_rows import open_pool
from idiolect.partition.option_checks import check_whole
from idiolect.partition.partition import Partition

__all__ = ["semantic_tiny"]


def semantic_tiny(
    labels: ArrayLike, n_clients: int = 0, *, seed: int, groups: int = 10, low: int = 100, high: int = 400
) -> Partition:
    """Every client holds rows of one group of classes, twenty of Tiny ImageNet's two hundred.

    Args:
        labels: the label of each row.
        n_clients: K; the number of clients follows from the data, and 0 takes them all (about 400 of Tiny
            ImageNet's 100,000 training images; 390 in the paper); otherwise K of them are drawn uniformly.
        seed: decides groups, sizes, rows and which clients are drawn.
        groups: from 1 to C.
        low, high: bounds of a client's size, both included.

    Deviations: as for `semantic_emnist`.
    """
    pool = open_pool("semantic_tiny", labels, n_clients, seed, least=0)
    check_whole("semantic_tiny", "groups", groups, 1, pool.classes.size, "the number of classes")
    clusters = np.array_split(pool.random.permutation(pool.classes), groups)
    return cut_clusters(pool, clusters, n_clients, low, high)
