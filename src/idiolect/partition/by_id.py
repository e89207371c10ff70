"""One client per id: the writer, speaker, rater or site a row came from.

    client k = {rows whose id is the k-th id}

The natural partition of Caldas et al. (LEAF), 2018, https://arxiv.org/abs/1812.01097, used by Li et al.
(FedPHP), ECML-PKDD 2021, and Li et al. (MAP), IEEE TKDE 2024.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from idiolect.errors import UserError
from idiolect.partition.checks import check_whole
from idiolect.partition.partition import Partition, rows_left
from idiolect.partition.pool import open_pool

__all__ = ["by_id"]


def by_id(labels: ArrayLike, n_clients: int, *, seed: int, ids: ArrayLike | None) -> Partition:
    """Every client holds the rows of one id.

    Args:
        labels: the label of each row.
        n_clients: K, at most the number of ids; where there are more ids, K of them are drawn uniformly and
            the rows of the others are dropped, as for the 30 of 210 raters of FLICKR-AES.
        seed: decides which ids are drawn; without effect when all are.
        ids: the id of each row, whole numbers or strings; clients are in ascending order of id.

    Deviations: none.
    """
    pool = open_pool("by_id", labels, n_clients, seed)
    names, owner = np.unique(_checked_ids(ids, pool.n_rows), return_inverse=True)
    check_whole("by_id", "n_clients", n_clients, 1, names.size, "the number of ids")
    chosen = np.sort(pool.random.permutation(names.size)[:n_clients])
    order = np.argsort(owner, kind="stable")
    rows_of_id = np.split(order, np.cumsum(np.bincount(owner))[:-1])
    clients = tuple(rows_of_id[number] for number in chosen)
    return Partition(clients, {"id not drawn": rows_left(pool.n_rows, clients)})


def _checked_ids(ids: ArrayLike | None, n_rows: int) -> NDArray[np.generic]:
    if ids is None:
        raise UserError("by_id: this data has no ids; choose another partition or pass ids, one per row")
    array = np.asarray(ids)
    if array.dtype == object and all(isinstance(name, str) for name in array.flat):
        array = array.astype(str)
    if array.shape != (n_rows,) or array.dtype.kind not in "iuUS":
        raise UserError(
            f"by_id: ids must be {n_rows} whole numbers or strings, one per row,"
            f" not {array.dtype} of shape {array.shape}"
        )
    return array
