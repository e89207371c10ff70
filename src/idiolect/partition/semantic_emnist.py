"""Clusters of digits, capitals and small letters, cut into clients of random size.

    digits 0-9, capitals 10-35 and small letters 36-61 are each shuffled and split into 5;
    cluster i holds the i-th share of each;  its clients have n_k ~ U{100, ..., 800} rows

Hahn et al. (SuPerFed), KDD 2022, first arXiv version, appendix, https://arxiv.org/abs/2109.07628
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from idiolect.errors import UserError
from idiolect.partition.cluster_cutting import cut_clusters
from idiolect.partition.labelled_rows import open_pool
from idiolect.partition.option_checks import check_whole
from idiolect.partition.partition import Partition

__all__ = ["semantic_emnist"]

BORDERS = (0, 10, 36, 62)  # of digits, capitals and small letters


def semantic_emnist(
    labels: ArrayLike, n_clients: int = 0, *, seed: int, clusters: int = 5, low: int = 100, high: int = 800
) -> Partition:
    """Every client holds some of two digits and of five or six letters of each case.

    Args:
        labels: the label of each row, as EMNIST byclass numbers them, 0 to 61.
        n_clients: K; the number of clients follows from the data, and 0 takes them all (about 1,550 of EMNIST's
            697,932 training images; 1,543 in the paper); otherwise K of them are drawn uniformly.
        seed: decides clusters, sizes, rows and which clients are drawn.
        clusters: at least 1; no class is in two of them.
        low, high: bounds of a client's size, both included.

    Deviations: the paper does not say what becomes of the last rows of a cluster; fewer than `low` are given
    to its last client, and nothing is dropped.
    """
    pool = open_pool("semantic_emnist", labels, n_clients, seed, least=0)
    check_whole("semantic_emnist", "clusters", clusters, 1, pool.classes.size, "the number of classes")
    first, last = int(pool.classes[0]), int(pool.classes[-1])
    if first < BORDERS[0] or last >= BORDERS[-1]:
        raise UserError(
            f"semantic_emnist: labels go from {first} to {last} but must lie in 0..61, digits, capitals and small"
            " letters; use it with emnist(split=byclass) or femnist"
        )
    kinds = [pool.classes[(pool.classes >= a) & (pool.classes < b)] for a, b in pairwise(BORDERS)]
    shares = [np.array_split(pool.random.permutation(kind), clusters) for kind in kinds]
    return cut_clusters(
        pool, [np.concatenate(cluster) for cluster in zip(*shares, strict=True)], n_clients, low, high
    )
