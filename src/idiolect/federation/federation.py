"""Clients as rows of one pool of examples, and the server's own test set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from idiolect.core.seeds import derive
from idiolect.data import Dataset, normalised
from idiolect.errors import UserError
from idiolect.federation.selection import newcomers_last
from idiolect.federation.splits import ClientRows, split_rows
from idiolect.partition import Partition

__all__ = ["Federation", "federate"]


@dataclass(frozen=True)
class Federation:
    """Args:
    x, y: the pool that rows point into; x is float32, normalised.
    server_x, server_y: the official test set, which no client trains on.
    newcomers: the last of the clients, who never train and are not of the population: what the partition
        numbered them.
    """

    x: np.ndarray  # [N, C, H, W]
    y: np.ndarray  # [N]
    server_x: np.ndarray
    server_y: np.ndarray
    n_classes: int
    clients: tuple[ClientRows, ...]
    public: np.ndarray  # rows of the pool without labels, for the server to train on
    newcomers: tuple[int, ...] = ()

    @property
    def population(self) -> int:
        return len(self.clients) - len(self.newcomers)

    def class_counts(self, split: str = "train") -> np.ndarray:
        """[clients, classes]"""
        return np.stack(
            [np.bincount(self.y[getattr(c, split)], minlength=self.n_classes) for c in self.clients]
        )


def federate(
    dataset: Dataset,
    partition: Partition,
    *,
    valid: float,
    test: float,
    seed: int,
    public: int = 0,
    public_in_test: bool = False,
    newcomers: int = 0,
) -> Federation:
    """Splits every client's rows; a client without rows is refused by name.

    Args:
        valid, test: shares of each client's rows.
        public: samples of the official test set that the server may look at without their labels.
        public_in_test: keeps them in the server's test set as well.
        newcomers: clients drawn by the seed who never train; they are numbered last.
    """
    if valid < 0 or test < 0 or valid + test >= 1:
        raise UserError(
            f"splits valid={valid} and test={test} must be at least 0 and leave room for training"
        )
    for client, rows in enumerate(partition.clients):
        if len(rows) == 0:
            raise UserError(f"client {client} has no data; use fewer clients or another partition")
    if public >= len(dataset.test_y):
        raise UserError(
            f"public is {public} but the server's test set has only {len(dataset.test_y)} samples"
        )
    numbered = newcomers_last(len(partition.clients), newcomers, seed=seed)
    order = np.random.default_rng(derive(seed, "public")).permutation(len(dataset.test_y))
    seen, kept = np.sort(order[:public]), np.sort(order if public_in_test else order[public:])
    pool = np.concatenate([dataset.train_x, dataset.test_x[seen]]) if public else dataset.train_x
    return Federation(
        x=normalised(pool, dataset.mean, dataset.std),
        y=np.concatenate([dataset.train_y, np.zeros(public, np.int64)]),
        server_x=normalised(dataset.test_x[kept], dataset.mean, dataset.std),
        server_y=dataset.test_y[kept],
        n_classes=dataset.n_classes,
        clients=tuple(
            split_rows(partition.clients[client], client, valid=valid, test=test, seed=seed)
            for client in numbered
        ),
        public=np.arange(len(dataset.train_y), len(dataset.train_y) + public),
        newcomers=tuple(numbered[len(numbered) - newcomers :]),
    )
