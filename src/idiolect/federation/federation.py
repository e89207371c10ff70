"""Clients as rows of one pool of examples, and the server's own test set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from idiolect.core.seeds import derive
from idiolect.data import Dataset, normalised
from idiolect.errors import UserError
from idiolect.federation.clients import Clients
from idiolect.federation.official_test import share_out
from idiolect.federation.selection import newcomers_last
from idiolect.federation.splits import split_rows
from idiolect.partition import Partition

__all__ = ["Federation", "federate"]

Allocate = Callable[[tuple[int, ...], type[np.generic]], np.ndarray]


@dataclass(frozen=True)
class Federation:
    """Args:
    x, y: the pool that rows point into; x is normalised images, float32, or tokens, int64.
    server_x, server_y: the official test set, which no client trains on; where the data have none, or it was shared
        out for training too, the test parts of all clients together.
    clients: any sequence of ``ClientRows``; kept packed.
    newcomers: the last of the clients, who never train and are not of the population: what the partition
        numbered them.
    """

    x: np.ndarray  # [N, C, H, W] or [N, L]
    y: np.ndarray  # [N]
    server_x: np.ndarray
    server_y: np.ndarray
    n_classes: int
    clients: Clients
    public: np.ndarray  # rows of the pool without labels, for the server to train on
    newcomers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.clients, Clients):
            object.__setattr__(self, "clients", Clients(self.clients))

    @property
    def population(self) -> int:
        return len(self.clients) - len(self.newcomers)

    def class_counts(self, split: str = "train") -> np.ndarray:
        """[clients, classes]"""
        return self.clients.class_counts(self.y, self.n_classes, split)


def federate(
    dataset: Dataset,
    partition: Partition,
    *,
    valid: float,
    test: float,
    seed: int,
    client_test: str = "split",
    public: int = 0,
    public_in_test: bool = False,
    newcomers: int = 0,
    allocate: Allocate = np.empty,
) -> Federation:
    """Splits every client's rows; a client without rows is refused by name.

    Args:
        valid, test: shares of each client's rows.
        client_test: ``split`` takes a client's test rows from its own; ``official`` shares the official test set out.
        public: samples of the official test set that the server may look at without their labels.
        public_in_test: keeps them in the server's test set as well.
        newcomers: clients drawn by the seed who never train; they are numbered last.
        allocate: (shape, dtype) -> the memory of the pool, for example such that other processes can read it.
    """
    _refuse_impossible(dataset, partition, valid, test, public)
    numbered = newcomers_last(len(partition.clients), newcomers, seed=seed)
    order = np.random.default_rng(derive(seed, "public")).permutation(len(dataset.test_y))
    seen, kept = np.sort(order[:public]), np.sort(order if public_in_test else order[public:])
    split = (
        split_rows(partition.clients[client], client, valid=valid, test=test, seed=seed)
        for client in numbered
    )
    pool_x, pool_y = [dataset.train_x, dataset.test_x[seen]], [dataset.train_y, np.zeros(public, np.int64)]
    if client_test == "official":
        shares = _official_shares(dataset, partition, kept, seed)
        first = len(dataset.train_y) + public
        split = (
            rows._replace(test=first + shares[client]) for rows, client in zip(split, numbered, strict=True)
        )
        pool_x, pool_y = [*pool_x, dataset.test_x[kept]], [*pool_y, dataset.test_y[kept]]
    clients = Clients(split)
    x, y = _ready(dataset, *pool_x, allocate=allocate), np.concatenate(pool_y)
    official = len(dataset.test_y) > 0
    tested = kept if official else np.concatenate([rows.test for rows in clients])
    return Federation(
        x=x,
        y=y,
        server_x=_ready(dataset, dataset.test_x[tested]) if official else x[tested],
        server_y=dataset.test_y[tested] if official else y[tested],
        n_classes=dataset.n_classes,
        clients=clients,
        public=np.arange(len(dataset.train_y), len(dataset.train_y) + public),
        newcomers=tuple(numbered[len(numbered) - newcomers :]),
    )


def _refuse_impossible(
    dataset: Dataset, partition: Partition, valid: float, test: float, public: int
) -> None:
    if valid < 0 or test < 0 or valid + test >= 1:
        raise UserError(
            f"splits valid={valid} and test={test} must be at least 0 and leave room for training"
        )
    for client, rows in enumerate(partition.clients):
        if len(rows) == 0:
            raise UserError(f"client {client} has no data; use fewer clients or another partition")
    if public and public >= len(dataset.test_y):
        raise UserError(
            f"public is {public} but the server's test set has only {len(dataset.test_y)} samples"
        )


def _official_shares(dataset: Dataset, partition: Partition, kept: np.ndarray, seed: int) -> list[np.ndarray]:
    """Places in ``kept``, the rows of the official test set, of each client of the partition."""
    if not len(dataset.test_y):
        raise UserError(f"dataset {dataset.name!r} has no official test set; set client_test to split")
    if partition.ids:
        raise UserError(
            f"the clients are the owners that dataset {dataset.name!r} names, and its official test set names none; "
            "set client_test to split"
        )
    labels = [dataset.train_y[rows] for rows in partition.clients]
    counts = np.stack([np.bincount(label, minlength=dataset.n_classes) for label in labels])
    return share_out(counts, dataset.test_y[kept], seed=seed)


def _ready(dataset: Dataset, *parts: np.ndarray, allocate: Allocate = np.empty) -> np.ndarray:
    """Rows as a network takes them, one part after the other; beside them no copy of the pool is held."""
    filled = [part for part in parts if len(part)]
    if dataset.is_tokens:
        return filled[0] if len(filled) == 1 else np.concatenate(filled)
    ready = allocate((sum(map(len, filled)), *dataset.shape), np.float32)
    done = 0
    for part in filled:
        normalised(part, dataset.mean, dataset.std, out=ready[done : done + len(part)])
        done += len(part)
    return ready
