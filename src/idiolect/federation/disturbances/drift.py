"""Drift: the data of some clients change in the middle of the run.

Rounds counted from 0 see the changed data from ceil(at * rounds) on, in training, validation and testing alike: every
evaluation is on the data of its time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from idiolect.core.seeds import derive
from idiolect.data import CLASS_TASKS
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice
from idiolect.federation.clients import Clients
from idiolect.federation.disturbances.corruptions import holds_images
from idiolect.federation.disturbances.disturbance import (
    Disturbance,
    DisturbedData,
    drawn_clients,
    from_round,
    refuse_share,
    with_copies,
)
from idiolect.federation.federation import Federation

__all__ = ["drift"]

KINDS = ("labels", "inputs", "clients")
Array = NDArray[Any]


def drift(at: float = 0.5, share: float = 0.5, kind: str = "labels") -> Disturbance:
    """The data of a share of the clients change after the first ceil(at * rounds) rounds, for training and testing.

    Args:
        at: where the change is, as a part of the rounds; at least 0 and below 1.
        share: of the clients, drawn by the seed of the data; above 0 and at most 1.
        kind: ``labels`` renames all classes by one cyclic permutation (concept drift); ``inputs`` turns images by a
            quarter, moves other numbers by an offset per feature, and permutes tokens (covariate drift); ``clients``
            has these clients exchange all their data in a cycle (label-shift drift).
    """
    refuse_outside("at of drift", at, 0, 1)
    if at == 1:
        raise UserError("at of drift must be below 1: no round would see the change")
    refuse_share("share of drift", share)
    refuse_unknown_choice("kind of drift", kind, KINDS)

    def data(federation: Federation, seed: int, rounds: int) -> DisturbedData:
        clients = drawn_clients(share, federation.population, seed)
        change = CHANGES[kind](federation, clients, seed)
        return DisturbedData(from_round(federation, first_round(at, rounds), change), clients)

    return Disturbance(data=data)


def first_round(at: float, rounds: int) -> int:
    """Returns the first changed round, counted from 0: ceil(at * rounds), safe against 0.07 * 100 = 7.000...01.

    >>> first_round(0.5, 15), first_round(0.07, 100), first_round(0.0, 3), first_round(0.99, 3)
    (8, 7, 0, 2)
    """
    return min(math.ceil(at * rounds - 1e-9), rounds - 1)


Changed = Callable[[Federation], Federation]


def _labels(federation: Federation, clients: tuple[int, ...], seed: int) -> Changed:
    """Renames the classes of these clients, each to another."""
    if federation.task not in (*CLASS_TASKS, "multilabel"):
        raise UserError(
            f"drift of labels renames classes and {federation.task} has none; set kind to inputs or clients"
        )
    renamed = cycle(federation.n_classes, np.random.default_rng(derive(seed, "classes")))

    def change(x: Array, y: Array) -> tuple[Array, Array]:
        return x, (renamed[y] if y.ndim == 1 else y[:, renamed])

    return lambda federation: with_copies(federation, clients, change)


def _inputs(federation: Federation, clients: tuple[int, ...], seed: int) -> Changed:
    """Changes how inputs look, in the same way for all these clients."""
    random = np.random.default_rng(derive(seed, "inputs"))
    whole = federation.x
    if whole.dtype.kind == "i":
        renamed = cycle(int(whole.max()) + 1, random)
        return lambda federation: with_copies(federation, clients, lambda x, y: (renamed[x], y))
    if holds_images(federation):
        quarters = 1 if whole.shape[2] == whole.shape[3] else 2
        return lambda federation: with_copies(
            federation, clients, lambda x, y: (np.rot90(x, quarters, axes=(2, 3)), y)
        )
    offset = random.standard_normal(whole.shape[1:]).astype(whole.dtype)
    return lambda federation: with_copies(federation, clients, lambda x, y: (x + offset, y))


def _clients(federation: Federation, clients: tuple[int, ...], seed: int) -> Changed:
    """Gives each of these clients the data of the next one in a cycle."""
    if len(clients) < 2:
        raise UserError(
            "drift of clients exchanges data among the drawn ones and one is drawn; raise share, or use more clients"
        )
    order = cycle(len(clients), np.random.default_rng(derive(seed, "exchange")))
    source = {client: clients[order[place]] for place, client in enumerate(clients)}

    def change(federation: Federation) -> Federation:
        held = federation.clients
        rows = (held[source.get(client, client)] for client in range(len(held)))
        return replace(federation, clients=Clients(rows))

    return change


def cycle(n: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Returns a random permutation of 0, ..., n - 1 that is one cycle, so that it leaves nothing in place.

    >>> cycle(2, np.random.default_rng(0)).tolist()
    [1, 0]
    """
    order = random.permutation(n)
    found = np.empty(n, np.int64)
    found[order] = np.roll(order, -1)
    return found


CHANGES = {"labels": _labels, "inputs": _inputs, "clients": _clients}
