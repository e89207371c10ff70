"""Partitioners of the package flwr-datasets as partitions of this one."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from idiolect.errors import UserError
from idiolect.partition.partition import Partition

__all__ = ["from_flower"]

LEFT_OUT = "left out by the partitioner"


def from_flower(partitioner: Any, labels: Sequence[int], ids: Sequence[int | str] | None = None) -> Partition:
    """Returns what a partitioner of flwr-datasets makes of rows with these labels.

    A function that calls it is registered like any partition of your own:

        import idiolect
        from flwr_datasets.partitioner import DirichletPartitioner
        from idiolect.partition import from_flower

        def flower_dirichlet(labels, n_clients, *, seed, alpha=0.3):
            made = DirichletPartitioner(n_clients, partition_by="label", alpha=alpha, seed=seed)
            return from_flower(made, labels)

        idiolect.register_partition("flower_dirichlet", flower_dirichlet)

    Args:
        partitioner: a fresh object of ``flwr_datasets.partitioner``; it reads the columns ``label`` and ``client``.
        labels: of all rows.
        ids: the owner of each row, where the data name owners; the column ``client``.
    """
    try:
        rows = import_module("datasets").Dataset
    except ModuleNotFoundError as error:
        raise UserError(
            "a partitioner of flwr-datasets needs the package datasets; install both with: pip install flwr-datasets"
        ) from error
    columns = {"row": np.arange(len(labels)), "label": np.asarray(labels)}
    columns |= {} if ids is None else {"client": np.asarray(ids)}
    partitioner.dataset = rows.from_dict(columns)
    clients = [
        np.sort(np.asarray(partitioner.load_partition(number)["row"], dtype=np.int64))
        for number in range(partitioner.num_partitions)
    ]
    shared_out = np.concatenate(clients) if clients else np.empty(0, np.int64)
    empty = [number for number, held in enumerate(clients) if not len(held)]
    if empty:
        raise UserError(f"the partitioner gives client {empty[0]} no rows; ask it for fewer partitions")
    return Partition(tuple(clients), {LEFT_OUT: np.setdiff1d(columns["row"], shared_out)})
