"""Clients as rows of one pool of examples, and the server's own test set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from idiolect.data import Dataset, normalised
from idiolect.errors import UserError
from idiolect.federation.splits import ClientRows, split_rows
from idiolect.partition import Partition

__all__ = ["Federation", "federate"]


@dataclass(frozen=True)
class Federation:
    """Args:
    x, y: the pool that clients' rows point into; x is float32, normalised.
    server_x, server_y: the official test set, which no client trains on.
    """

    x: np.ndarray  # [N, C, H, W]
    y: np.ndarray  # [N]
    server_x: np.ndarray
    server_y: np.ndarray
    n_classes: int
    clients: tuple[ClientRows, ...]

    @property
    def population(self) -> int:
        return len(self.clients)

    def class_counts(self, split: str = "train") -> np.ndarray:
        """[clients, classes]"""
        return np.stack(
            [np.bincount(self.y[getattr(c, split)], minlength=self.n_classes) for c in self.clients]
        )


def federate(dataset: Dataset, partition: Partition, *, valid: float, test: float, seed: int) -> Federation:
    """Splits every client's rows; a client without rows is refused by name."""
    if valid < 0 or test < 0 or valid + test >= 1:
        raise UserError(
            f"splits valid={valid} and test={test} must be at least 0 and leave room for training"
        )
    for client, rows in enumerate(partition.clients):
        if len(rows) == 0:
            raise UserError(f"client {client} has no data; use fewer clients or another partition")
    return Federation(
        x=normalised(dataset.train_x, dataset.mean, dataset.std),
        y=dataset.train_y,
        server_x=normalised(dataset.test_x, dataset.mean, dataset.std),
        server_y=dataset.test_y,
        n_classes=dataset.n_classes,
        clients=tuple(
            split_rows(rows, client, valid=valid, test=test, seed=seed)
            for client, rows in enumerate(partition.clients)
        ),
    )
