"""Two neighbouring classes per client in very unequal amounts.

    user u holds labels l = (u + j) mod C, j = 0, 1:  10 rows of each, then
    m = int(p_{l, u', j}) + U{300, ..., 600},  u' = u // max(K // C, 1),  doubled if K <= 20
    p_l = (n_l - K) x / sum(x),  x ~ LogNormal(0, 2) of shape [K, 2]

The data generator of Dinh et al. (pFedMe), NeurIPS 2020, https://arxiv.org/abs/2006.08848, which is data
split DS-3 of Divi et al. (PersFL), 2021, https://arxiv.org/abs/2105.15191
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from idiolect.errors import UserError
from idiolect.partition.allocation import allocate_rows
from idiolect.partition.labelled_rows import LabelPool, open_pool
from idiolect.partition.option_checks import check_real, check_whole
from idiolect.partition.partition import Partition

__all__ = ["lognormal_2class"]

FIRST_SAMPLES = 10
LARGEST_EXTRA = 10**9


def lognormal_2class(
    labels: ArrayLike,
    n_clients: int,
    *,
    seed: int,
    classes_per_client: int = 2,
    sigma: float = 2.0,
    extra_low: int = 300,
    extra_high: int = 600,
) -> Partition:
    """Every client holds two neighbouring classes, some clients many times more than others.

    Args:
        labels: the label of each row; each class needs 10 rows for each of its clients.
        n_clients: K (10 in PersFL).
        seed: decides amounts and rows.
        classes_per_client: L, from 1 to C (2; pFedMe's generator for CIFAR-10 uses 3).
        sigma: spread of the log-normal amounts, in [0, 10].
        extra_low, extra_high: bounds, both included, of the uniform amount added to each; lower them for
            small data.

    As in the published code, an assignment is skipped whole when fewer than m + 1 rows of its class remain,
    so a client may be left with its first 10 rows of that class.

    Deviations: C classes where the code has 10; n_l - K is taken as 0 where it would be negative; the
    rows of each class are shuffled before they are allocated.
    """
    pool = open_pool("lognormal_2class", labels, n_clients, seed)
    n_classes = pool.classes.size
    check_whole("lognormal_2class", "classes_per_client", classes_per_client, 1, n_classes, "all classes")
    check_real("lognormal_2class", "sigma", sigma, 0, 10)
    check_whole("lognormal_2class", "extra_low", extra_low, 0, LARGEST_EXTRA)
    check_whole("lognormal_2class", "extra_high", extra_high, extra_low, LARGEST_EXTRA)
    counts = _first_counts(pool, n_clients, classes_per_client)
    wanted = _wanted(pool, n_clients, classes_per_client, sigma, (extra_low, extra_high))
    clients, left = allocate_rows(pool.shuffled(), _topped_up(counts, wanted, pool.class_sizes))
    return Partition(tuple(clients), {"not drawn for any client": left})


def _first_counts(pool: LabelPool, n_clients: int, per_client: int) -> NDArray[np.int64]:
    """Counts ten rows of each of a client's classes, [K, C]."""
    counts = np.zeros((n_clients, pool.classes.size), dtype=np.int64)
    for user, position in np.ndindex(n_clients, per_client):
        counts[user, (user + position) % pool.classes.size] += FIRST_SAMPLES
    short = np.flatnonzero(counts.sum(axis=0) > pool.class_sizes)
    if short.size:
        c = int(short[0])
        raise UserError(
            f"lognormal_2class: class {pool.classes[c]} has {pool.class_sizes[c]} samples but its clients"
            f" start with {counts[:, c].sum()}; use fewer clients, fewer classes_per_client or more data"
        )
    return counts


def _wanted(
    pool: LabelPool, n_clients: int, per_client: int, sigma: float, extra: tuple[int, int]
) -> NDArray[np.int64]:
    """Draws m for each client and position, [K, L]."""
    n_classes = pool.classes.size
    amounts = pool.random.lognormal(0.0, sigma, size=(n_classes, n_clients, per_client))
    free = np.maximum(pool.class_sizes - n_clients, 0)[:, None, None]
    amounts *= free / amounts.sum(axis=(1, 2), keepdims=True)
    user, position = np.indices((n_clients, per_client))
    drawn = amounts[(user + position) % n_classes, user // max(n_clients // n_classes, 1), position]
    wanted: NDArray[np.int64] = drawn.astype(np.int64) + pool.random.integers(
        *extra, size=drawn.shape, endpoint=True
    )
    return wanted * 2 if n_clients <= 20 else wanted


def _topped_up(
    counts: NDArray[np.int64], wanted: NDArray[np.int64], class_sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Adds each client's m where, strictly, the class has more rows than that left."""
    counts, used = counts.copy(), counts.sum(axis=0)
    for user, position in np.ndindex(wanted.shape):
        c, more = (user + position) % class_sizes.size, wanted[user, position]
        if used[c] + more < class_sizes[c]:
            counts[user, c] += more
            used[c] += more
    return counts
