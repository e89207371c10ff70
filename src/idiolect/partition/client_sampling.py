"""Random sampling of the clients that take part, where the data have more than are wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from idiolect.partition.labelled_rows import LabelPool
from idiolect.partition.option_checks import check_whole
from idiolect.partition.partition import Partition, RowNumbers

__all__ = ["draw_clients"]


def draw_clients(
    pool: LabelPool,
    clients: Sequence[RowNumbers],
    n_clients: int,
    *,
    noun: str,
    dropped: Mapping[str, RowNumbers] | None = None,
    ids: Sequence[int | str] = (),
) -> Partition:
    """Draws K of the clients uniformly, and keeps their order; the rows of the others are dropped.

    Args:
        pool: the pool that the clients divide.
        clients: the rows of every client.
        n_clients: K, at most their number; 0 takes all.
        noun: what reasons and messages call a client before it is drawn: "id" or "client".
        dropped: reason -> rows that belong to no client.
        ids: the id of each client, where it has one.
    """
    wanted = n_clients or len(clients)
    check_whole(
        pool.partition, "n_clients", wanted, 1, len(clients), f"the number of {noun}s; 0 takes all of them"
    )
    order = pool.random.permutation(len(clients))
    chosen, others = np.sort(order[:wanted]), order[wanted:]
    not_drawn = [clients[number] for number in others]
    return Partition(
        tuple(clients[number] for number in chosen),
        {**(dropped or {}), f"{noun} not drawn": np.concatenate([np.empty(0, np.int64), *not_drawn])},
        ids=tuple(ids[number] for number in chosen) if ids else (),
    )
