"""One client per id: the writer, speaker, rater or site a row came from.

    client k = {rows whose id is the k-th id}

The natural partition of Caldas et al. (LEAF), 2018, https://arxiv.org/abs/1812.01097, used by Li et al.
(FedPHP), ECML-PKDD 2021, Li et al. (MAP), IEEE TKDE 2024, and, with the raters of FLICKR-AES, Arivazhagan et
al. (FedPer), 2019, https://arxiv.org/abs/1912.00818.  It answers to the name `natural` too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from idiolect.errors import UserError
from idiolect.partition.client_sampling import draw_clients
from idiolect.partition.labelled_rows import open_pool
from idiolect.partition.option_checks import check_whole
from idiolect.partition.partition import Partition, RowNumbers

__all__ = ["by_id"]


def by_id(
    labels: ArrayLike,
    n_clients: int = 0,
    *,
    seed: int,
    ids: ArrayLike | None,
    min_samples: int = 1,
    max_samples: int | None = None,
) -> Partition:
    """Every client holds the rows of one id.

    Args:
        labels: the label of each row.
        n_clients: K, at most the number of ids that fit; 0 takes them all (3,550 writers of FEMNIST); otherwise
            K of them are drawn uniformly and the rows of the others are dropped, as for the 30 raters of
            FLICKR-AES.
        seed: decides which ids are drawn; without effect when all are.
        ids: the id of each row, whole numbers or strings; clients are in ascending order of id.
        min_samples, max_samples: an id with fewer or more rows is left out before any is drawn (FedPer: raters
            with 60 to 290 ratings).

    Deviations: none.
    """
    pool = open_pool("by_id", labels, n_clients, seed, least=0)
    check_whole("by_id", "min_samples", min_samples, 1)
    if max_samples is not None:
        check_whole("by_id", "max_samples", max_samples, min_samples)
    names, owner = np.unique(_checked_ids(ids, pool.n_rows), return_inverse=True)
    rows_of_id = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
    fitting, dropped = _within(rows_of_id, min_samples, max_samples)
    clients = [rows_of_id[number] for number in fitting]
    return draw_clients(pool, clients, n_clients, noun="id", dropped=dropped, ids=names[fitting].tolist())


def _within(
    rows_of_id: list[RowNumbers], low: int, high: int | None
) -> tuple[NDArray[np.int64], dict[str, RowNumbers]]:
    """Returns the numbers of the ids that have from `low` to `high` rows, and the rows of the others by reason."""
    sizes = np.array([rows.size for rows in rows_of_id])
    few, many = sizes < low, sizes > (sizes.max() if high is None else high)
    if (few | many).all():
        raise UserError(
            f"by_id: none of the {sizes.size} ids has from min_samples={low} to max_samples={high} samples;"
            " widen the range"
        )
    dropped = {
        f"id with fewer than {low} samples": _together(rows_of_id, few),
        f"id with more than {high} samples": _together(rows_of_id, many),
    }
    return np.flatnonzero(~(few | many)), dropped


def _together(rows_of_id: list[RowNumbers], which: NDArray[np.bool_]) -> RowNumbers:
    return np.concatenate([np.empty(0, np.int64), *(rows_of_id[number] for number in np.flatnonzero(which))])


def _checked_ids(ids: ArrayLike | None, n_rows: int) -> NDArray[np.generic]:
    if ids is None:
        raise UserError("by_id: this data has no ids; choose another partition or pass ids, one per row")
    array = np.asarray(ids)
    if array.dtype == object and all(isinstance(name, str) for name in array.flat):
        array = array.astype(str)
    if array.shape != (n_rows,) or array.dtype.kind not in "iuU":
        raise UserError(
            f"by_id: ids must be {n_rows} whole numbers or strings, one per row,"
            f" not {array.dtype} of shape {array.shape}"
        )
    return array
