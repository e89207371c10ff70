"""What a run has cost each client: rounds, local steps, floating-point operations and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from idiolect.experiments.rounds.client_work import Work
from idiolect.records import COST_SCHEMA

__all__ = ["ClientCosts"]

COLUMNS = {
    "rounds": np.int64,
    "steps": np.int64,
    "flops": np.float64,
    "bytes_down": np.int64,
    "bytes_up": np.int64,
}


class ClientCosts:
    """The costs of all clients so far.

    Args:
        population: clients that train; those with higher numbers are newcomers.
        newcomers: how many of them are known.
    """

    def __init__(self, population: int, newcomers: int = 0) -> None:
        self._population = population
        self._columns: dict[str, NDArray[Any]] = {
            name: np.zeros(population + newcomers, kind) for name, kind in COLUMNS.items()
        }
        self._is_whole = True

    def train(self, work: Iterable[tuple[int, Work]]) -> Work:
        """Adds a round's local work by client; returns its sum."""
        found = list(work)
        self._add("rounds", [client for client, _ in found], 1)
        return self.settle(found)

    def settle(self, work: Iterable[tuple[int, Work]]) -> Work:
        """Adds work after a merge or at the end of the run by client; returns its sum."""
        total, found = Work(0, 0.0), list(work)
        clients = [client for client, _ in found]
        for name in Work._fields:
            self._add(name, clients, [getattr(did, name) for _, did in found])
        for _, did in found:
            total = total.plus(did)
        return total

    def download(self, clients: Sequence[int], size: int) -> int:
        """Adds a download of ``size`` bytes for each of the clients; returns the sum."""
        self._add("bytes_down", clients, size)
        return size * len(clients)

    def upload(self, clients: Sequence[int], sizes: Sequence[int]) -> int:
        """Adds the bytes that each of the clients uploads; returns the sum."""
        self._add("bytes_up", clients, sizes)
        return sum(sizes)

    def table(self) -> pa.Table:
        """Returns one row for each client; empty where a checkpoint of an older version knew no costs."""
        if not self._is_whole:
            return COST_SCHEMA.empty_table()
        columns = {name: pa.array(values, from_pandas=True) for name, values in self._columns.items()}
        clients = np.arange(len(self._columns["rounds"]))
        kind = np.where(clients < self._population, "all", "new")
        columns |= {"client": pa.array(clients), "population": pa.array(kind)}
        return pa.table(
            [columns[name].cast(COST_SCHEMA.field(name).type) for name in COST_SCHEMA.names], COST_SCHEMA
        )

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint must hold."""
        held = {name: torch.from_numpy(values.copy()) for name, values in self._columns.items()}
        return held if self._is_whole else {}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Continues from a checkpoint; one of an older version has no costs, and then nobody knows them."""
        self._is_whole = bool(state)
        if state:
            self._columns = {name: state[name].numpy().copy() for name in COLUMNS}

    def _add(self, name: str, clients: Sequence[int], values: Any) -> None:
        missing = max(clients, default=-1) + 1 - len(self._columns[name])
        if missing > 0:  # a site that came later
            self._columns = {key: np.pad(column, (0, missing)) for key, column in self._columns.items()}
        np.add.at(self._columns[name], np.asarray(clients, np.int64), values)
