"""Partition by each client's proportions of the classes: the last step of MAP's two partitions.

    d_kc <- s_k d_kc,  s_k ~ LogNormal(0, sigma);   d_kc <- d_kc / sum_j d_jc;   m_kc = round(d_kc n_c)

Li et al. (MAP), IEEE TKDE 2024; the factor s_k is in the published code only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from idiolect.errors import UserError
from idiolect.partition.allocation import allocate_rows
from idiolect.partition.labelled_rows import LabelPool
from idiolect.partition.option_checks import check_real, check_whole
from idiolect.partition.partition import Partition, RowNumbers

__all__ = ["partition_by_proportions"]

REDRAWS = 100
UNHELD = 1e-100  # a class whose shares sum to less is held by nobody


def partition_by_proportions(
    pool: LabelPool, draw: Callable[[], NDArray[np.float64]], *, sigma: float, min_samples: int
) -> Partition:
    """Allocates the rows of each class consecutively, in the order of the data, and removes tiny clients.

    Args:
        pool: the pool that the clients divide.
        draw: draws the proportions d, [K, C], non-negative.
        sigma: spread of the clients' sizes, in [0, 10]; 0 leaves the proportions as drawn.
        min_samples: a client with fewer rows, at least 1, is removed.
    """
    check_real(pool.partition, "sigma", sigma, 0, 10)
    check_whole(pool.partition, "min_samples", min_samples, 1)
    proportions = _held_by_somebody(pool, draw)
    proportions = proportions * pool.random.lognormal(0.0, sigma, size=(proportions.shape[0], 1))
    fractions = proportions / proportions.sum(axis=0)
    counts = np.rint(fractions * pool.class_sizes).astype(np.int64)
    clients, left = allocate_rows(pool.rows_of_class, counts)
    return _without_tiny_clients(pool.partition, clients, left, min_samples)


def _held_by_somebody(pool: LabelPool, draw: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
    """Draws proportions again, at most 100 times, while no client has a share of some class.

    A class that no client has a share of even then goes to one client as a whole, drawn uniformly.
    """
    for _ in range(REDRAWS):
        proportions = draw()
        if (proportions.sum(axis=0) > UNHELD).all():
            return proportions
    for c in np.flatnonzero(proportions.sum(axis=0) <= UNHELD):
        proportions[pool.random.integers(proportions.shape[0]), c] = 1.0
    return proportions


def _without_tiny_clients(
    partition: str, clients: list[RowNumbers], left: RowNumbers, min_samples: int
) -> Partition:
    removed = {number: rows.size for number, rows in enumerate(clients) if rows.size < min_samples}
    kept = tuple(rows for rows in clients if rows.size >= min_samples)
    if not kept:
        raise UserError(
            f"{partition}: each of the {len(clients)} clients has fewer than"
            f" min_samples={min_samples} samples; use fewer clients, more data or a smaller min_samples"
        )
    tiny = [clients[number] for number in removed]
    dropped = {"leftover of rounded shares": left}
    if tiny:
        dropped[f"client below {min_samples} samples"] = np.concatenate(tiny)
    return Partition(kept, dropped, removed)
