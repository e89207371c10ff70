"""Clusters of classes cut into clients of random size: the last step of SuPerFed's two semantic partitions.

    n_k ~ U{low, ..., high}, client after client, until the cluster's shuffled rows are exhausted

Hahn et al. (SuPerFed), KDD 2022, first arXiv version, appendix, https://arxiv.org/abs/2109.07628
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from idiolect.errors import UserError
from idiolect.partition.client_sampling import draw_clients
from idiolect.partition.labelled_rows import LabelPool
from idiolect.partition.option_checks import check_whole
from idiolect.partition.partition import Partition, RowNumbers

__all__ = ["cut_clusters"]

LARGEST = 10**9


def cut_clusters(
    pool: LabelPool, clusters: Sequence[NDArray[np.int64]], n_clients: int, low: int, high: int
) -> Partition:
    """Cuts every cluster's rows into clients, so that a client holds rows of one cluster.

    Args:
        pool: the pool that the clients divide.
        clusters: the labels of each cluster; together all labels, each once.
        n_clients: K of the resulting clients, drawn uniformly; 0 takes all.
        low, high: bounds of a client's size, both included; what is left of a cluster when fewer than `low`
            rows remain goes to its last client.
    """
    check_whole(pool.partition, "low", low, 1, LARGEST)
    check_whole(pool.partition, "high", high, low, LARGEST)
    if any(labels.size == 0 for labels in clusters):
        raise UserError(
            f"{pool.partition}: the {pool.classes.size} classes of this data do not fill {len(clusters)}"
            " clusters; use fewer clusters or data with more classes"
        )
    pieces = [
        piece
        for labels in clusters
        for piece in _cut(pool.random, _rows_of(pool, labels), int(low), int(high))
    ]
    return draw_clients(pool, pieces, n_clients, noun="client")


def _rows_of(pool: LabelPool, labels: NDArray[np.int64]) -> RowNumbers:
    return np.concatenate([pool.rows_of_class[number] for number in np.searchsorted(pool.classes, labels)])


def _cut(random: np.random.Generator, rows: RowNumbers, low: int, high: int) -> list[RowNumbers]:
    most = -(-rows.size // low)
    cuts = np.cumsum(random.integers(low, high, size=most, endpoint=True))
    cuts = cuts[cuts < rows.size]
    if cuts.size and rows.size - cuts[-1] < low:
        cuts = cuts[:-1]
    return np.split(random.permutation(rows), cuts)
