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
from idiolect.partition.allocation import allocate_rows
from idiolect.partition.labelled_rows import LabelPool, open_pool
from idiolect.partition.option_checks import check_flag, check_real, check_whole
from idiolect.partition.partition import Partition

__all__ = ["assign_classes", "label_k"]

MOST_SWEEPS = 10_000  # of iterative proportional fitting


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
        allow_duplicates: a client may be assigned a class twice and then gets two shares of it, as in the
            published code of FedPHP.
        within_client_skew: s in [0, 0.95]; 0 gives equal shares, more gives a client more of one class and
            less of another at the same total.

    Deviations: FedPHP's code may assign a class twice; here the k classes are distinct unless allowed
    otherwise. PersFL does not say how the numbers per class differ; the rule is ours. Rows that no equal
    share takes are dropped.
    """
    pool = open_pool("label_k", labels, n_clients, seed)
    n_classes = pool.classes.size
    check_whole("label_k", "k", k, 1, n_classes, "the number of classes")
    check_flag("label_k", "allow_duplicates", allow_duplicates)
    check_real("label_k", "within_client_skew", within_client_skew, 0, 0.95)
    _check_every_class_held(k, n_clients, n_classes)
    held = assign_classes(pool.random, n_classes, n_clients, k, allow_duplicates)
    shares = _equal_shares(pool, held)
    counts = _skewed_counts(held * shares, within_client_skew, pool.random)
    _check_no_class_lost(pool, held, counts)
    clients, left = allocate_rows(pool.shuffled(), counts)
    return Partition(tuple(clients), {"leftover of equal shares": left})


def _check_every_class_held(k: int, n_clients: int, n_classes: int) -> None:
    if k * n_clients < n_classes:
        raise UserError(
            f"label_k: k={k} classes for each of n_clients={n_clients} leave some of the {n_classes} classes"
            f" unheld; k * n_clients must be at least {n_classes}"
        )


def assign_classes(
    random: np.random.Generator, n_classes: int, n_clients: int, k: int, allow_duplicates: bool
) -> NDArray[np.int64]:
    """Assigns k classes to each client from a sequence of random permutations of the classes.

        client i holds entries [i k, (i + 1) k) of pi_1 | pi_2 | ...

    Every class is assigned once before any is assigned again, so all classes are held by nearly equal numbers
    of clients (FedPHP).  A client that takes the last a entries of one permutation could get the same class
    again from the next.  Unless that is allowed, its other k - a entries are drawn uniformly from the C - a
    classes it does not hold, and the rest of the next permutation is shuffled.  No draw is repeated.

    Returns:
        How often each client holds each class, [K, C]; rows sum to k.
    """
    held = np.zeros((n_clients, n_classes), dtype=np.int64)
    remaining = random.permutation(n_classes)
    for client in range(n_clients):
        taken, remaining = remaining[:k], remaining[k:]
        np.add.at(held[client], taken, 1)
        missing = k - taken.size
        if missing:
            allowed = np.arange(n_classes) if allow_duplicates else np.flatnonzero(held[client] == 0)
            drawn = random.permutation(allowed)[:missing]
            np.add.at(held[client], drawn, 1)
            remaining = random.permutation(np.setdiff1d(np.arange(n_classes), drawn))
    return held


def _equal_shares(pool: LabelPool, held: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns floor(n_c / r_c) for each class, at least one row."""
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


def _skewed_counts(counts: NDArray[np.int64], skew: float, random: np.random.Generator) -> NDArray[np.int64]:
    """Gives a client different numbers of its classes without changing how much it holds.

        m_uc  <-  m_uc v_uc,  v_uc ~ U[1 - s, 1 + s],  then rows and columns rescaled in turn to their old sums

    The rescaling is iterative proportional fitting (Deming and Stephan, Annals of Mathematical Statistics 1940).
    A class sum never grows; a client's sum falls by less than one row per class it holds, for rounding down
    (once the fit has converged; it stops after 10 000 sweeps at the latest).  A class that one client alone
    holds keeps its count.  `skew` s = 0 is the identity.

    Args:
        counts: [K, C], every row and column sum positive.
    """
    if skew == 0:
        return counts
    per_client, per_class = counts.sum(axis=1, keepdims=True), counts.sum(axis=0, keepdims=True)
    weights = counts * random.uniform(1 - skew, 1 + skew, size=counts.shape)
    for _ in range(MOST_SWEEPS):
        weights *= per_client / weights.sum(axis=1, keepdims=True)
        weights *= per_class / weights.sum(axis=0, keepdims=True)
        if np.abs(weights.sum(axis=1, keepdims=True) - per_client).max() < 1e-3:
            break
    return np.floor(weights + 1e-6).astype(np.int64)


def _check_no_class_lost(pool: LabelPool, held: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
    lost = np.argwhere((held > 0) & (counts == 0))
    if lost.size:
        client, c = (int(value) for value in lost[0])
        raise UserError(
            f"label_k: within_client_skew leaves client {client} without any of class {pool.classes[c]};"
            " lower it, use fewer clients or more data"
        )
