"""Allocation of the rows of each class to the clients, by given counts.

    client u receives rows [sum_{v<u} m_vc, sum_{v<=u} m_vc) of class c, cut off at the end of the class

Every partition that decides counts per client and class ends with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from idiolect.partition.partition import RowNumbers

__all__ = ["allocate_rows"]


def allocate_rows(
    rows_of_class: Sequence[RowNumbers], counts: NDArray[np.int64]
) -> tuple[list[RowNumbers], RowNumbers]:
    """Gives client u the next `counts[u, c]` rows of class c, clients in order.

    Args:
        rows_of_class: C arrays of rows, in the order in which they are allocated.
        counts: m, [K, C], non-negative; counts beyond the end of a class are cut off.

    Returns:
        The rows of each client, and the rows left over.
    """
    ends = np.cumsum(counts, axis=0)  # [K, C]; a slice past the end of a class stops there
    starts = np.vstack([np.zeros_like(ends[:1]), ends[:-1]])  # [K, C]
    clients = [
        np.concatenate([rows[a:b] for rows, a, b in zip(rows_of_class, start, end, strict=True)])
        for start, end in zip(starts, ends, strict=True)
    ]
    left = np.concatenate([rows[end:] for rows, end in zip(rows_of_class, ends[-1], strict=True)])
    return clients, left
