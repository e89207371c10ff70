"""Turns every client's wish for classes into rows: the common end of MAP's two partitions.

    d_kc <- s_k d_kc,  s_k ~ LogNormal(0, sigma);   d_kc <- d_kc / sum_j d_jc;   m_kc = round(d_kc n_c)

Li et al. (MAP), IEEE TKDE 2024; the factor s_k is in the published code only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from idiolect.errors import UserError
from idiolect.partition.checks import check_real, check_whole
from idiolect.partition.hand_out import hand_out
from idiolect.partition.partition import Partition, RowNumbers
from idiolect.partition.pool import Pool

__all__ = ["hand_out_shares"]

REDRAWS = 100
UNHELD = 1e-100  # a class whose shares sum to less is held by nobody


def hand_out_shares(
    pool: Pool, draw: Callable[[], NDArray[np.float64]], *, sigma: float, min_samples: int
) -> Partition:
    """Gives out the rows of each class consecutively, in the order of the data, and removes tiny clients.

    Args:
        pool: what is shared out.
        draw: draws the wishes d, [K, C], non-negative.
        sigma: spread of the clients' sizes, in [0, 10]; 0 leaves the wishes as drawn.
        min_samples: a client with fewer rows, at least 1, is removed.
    """
    check_real(pool.partition, "sigma", sigma, 0, 10)
    check_whole(pool.partition, "min_samples", min_samples, 1)
    wishes = _held_by_somebody(pool, draw)
    wishes = wishes * pool.random.lognormal(0.0, sigma, size=(wishes.shape[0], 1))
    fractions = wishes / wishes.sum(axis=0)
    counts = np.rint(fractions * pool.class_sizes).astype(np.int64)
    clients, left = hand_out(pool.rows_of_class, counts)
    return _without_tiny_clients(pool.partition, clients, left, min_samples)


def _held_by_somebody(pool: Pool, draw: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
    """Draws again, at most 100 times, while nobody wishes for some class.

    A class that nobody wishes for even then goes whole to one client, drawn uniformly.
    """
    for _ in range(REDRAWS):
        wishes = draw()
        if (wishes.sum(axis=0) > UNHELD).all():
            return wishes
    for c in np.flatnonzero(wishes.sum(axis=0) <= UNHELD):
        wishes[pool.random.integers(wishes.shape[0]), c] = 1.0
    return wishes


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
