"""k classes per client, in equal shares.

    client i holds k classes;  each of the r_c holders of class c gets floor(n_c / r_c) of its rows

Li et al. (FedPHP), ECML-PKDD 2021; Arivazhagan et al. (FedPer), 2019, https://arxiv.org/abs/1912.00818;
Divi et al. (PersFL), 2021, https://arxiv.org/abs/2105.15191 (data split DS-1: k = 4, unequal within a
client).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from idiolect.errors import UserError
from idiolect.partition.checks import check_flag, check_real, check_whole
from idiolect.partition.class_hands import deal_classes
from idiolect.partition.hand_out import hand_out
from idiolect.partition.partition import Partition
from idiolect.partition.pool import Pool, open_pool
from idiolect.partition.skewed_counts import skewed_counts

__all__ = ["label_k"]


def label_k(
    labels: ArrayLike,
    n_clients: int,
    *,
    seed: int,
    k: int = 5,
    allow_duplicates: bool = False,
    within_client_skew: float = 0.0,
) -> Partition:
    """Every client holds k classes, each class shared equally among its holders.

    Args:
        labels: the label of each row.
        n_clients: K, with k K >= C so that every class is held.
        seed: decides who holds which class and which rows.
        k: classes per client, from 1 to C (FedPHP: 5 or 20; FedPer: 4, 8, 10 of 10; PersFL: 4).
        allow_duplicates: a client may be dealt a class twice and then gets two shares of it, as in the
            published code of FedPHP.
        within_client_skew: s in [0, 0.95]; 0 gives equal shares, more gives a client more of one class and
            less of another at the same total (see `skewed_counts`).

    Deviations: FedPHP's code may deal a class twice; here the k classes are distinct unless allowed
    otherwise. PersFL does not say how the numbers per class differ; the rule is ours. Rows that no equal
    share takes are dropped.
    """
    pool = open_pool("label_k", labels, n_clients, seed)
    n_classes = pool.classes.size
    check_whole("label_k", "k", k, 1, n_classes, "the number of classes")
    check_flag("label_k", "allow_duplicates", allow_duplicates)
    check_real("label_k", "within_client_skew", within_client_skew, 0, 0.95)
    _check_every_class_held(k, n_clients, n_classes)
    held = deal_classes(pool.random, n_classes, n_clients, k, allow_duplicates)
    shares = _equal_shares(pool, held)
    counts = skewed_counts(held * shares, within_client_skew, pool.random)
    _check_no_class_lost(pool, held, counts)
    clients, left = hand_out(pool.shuffled(), counts)
    return Partition(tuple(clients), {"leftover of equal shares": left})


def _check_every_class_held(k: int, n_clients: int, n_classes: int) -> None:
    if k * n_clients < n_classes:
        raise UserError(
            f"label_k: k={k} classes for each of n_clients={n_clients} leave some of the {n_classes} classes"
            f" unheld; k * n_clients must be at least {n_classes}"
        )


def _equal_shares(pool: Pool, held: NDArray[np.int64]) -> NDArray[np.int64]:
    """floor(n_c / r_c) for each class, at least one row."""
    holders = held.sum(axis=0)
    short = np.flatnonzero(pool.class_sizes < holders)
    if short.size:
        c = int(short[0])
        raise UserError(
            f"label_k: class {pool.classes[c]} has {pool.class_sizes[c]} samples for {holders[c]} shares;"
            " use fewer clients, a smaller k or more data"
        )
    shares: NDArray[np.int64] = pool.class_sizes // holders
    return shares


def _check_no_class_lost(pool: Pool, held: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
    lost = np.argwhere((held > 0) & (counts == 0))
    if lost.size:
        client, c = (int(value) for value in lost[0])
        raise UserError(
            f"label_k: within_client_skew leaves client {client} without any of class {pool.classes[c]};"
            " lower it, use fewer clients or more data"
        )
