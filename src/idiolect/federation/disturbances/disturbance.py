"""A disturbance: what goes wrong in a run, as pure functions of the data or the round and of a seed.

Every draw is derived from the seed, the round and the client, so that all engines see the same troubles and a resumed
run meets those of an uninterrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from idiolect.core.context import Messages
from idiolect.core.seeds import derive
from idiolect.core.trees import Slot
from idiolect.errors import UserError, refuse_outside
from idiolect.federation.clients import Clients
from idiolect.federation.federation import Federation, LaterRows
from idiolect.federation.splits import ClientRows

__all__ = [
    "AnswerTimes",
    "Disturbance",
    "DisturbedData",
    "SentUploads",
    "drawn_clients",
    "drawn_in_round",
    "from_round",
    "refuse_share",
    "with_copies",
    "with_inputs",
    "with_targets",
]

Rows = NDArray[Any]
Change = Callable[[Rows, int, str], Rows]  # (rows, client, split) -> rows


class DisturbedData(NamedTuple):
    """A federation whose data were disturbed, and the clients concerned, in client-id order.

    Clients that send something hostile are named so as well; then the data are as they were.
    """

    federation: Federation
    clients: tuple[int, ...]


class SentUploads(NamedTuple):
    """What the clients of a round send.

    Args:
        clients: in the order of the stacked messages.
        origin: by message, what a client that has learnt nothing would send.
        marked: the clients that this disturbance has named with ``data``.
    """

    round: int
    rounds: int
    clients: Sequence[int]
    messages: Messages
    origin: Mapping[str, Slot]
    marked: Sequence[int]


class AnswerTimes(NamedTuple):
    """When clients answer in a round.

    Args:
        seconds: by client, the simulated time from the start of the round to its upload.
        limit: the simulated time after which nobody is waited for; None if everybody is.
    """

    seconds: Mapping[int, float]
    limit: float | None

    @property
    def cut_off(self) -> set[int]:
        """Those who are too slow."""
        return {client for client, time in self.seconds.items() if time > self.deadline}

    @property
    def deadline(self) -> float:
        return math.inf if self.limit is None else self.limit


class Disturbance(NamedTuple):
    """One kind of trouble; a function that is absent changes nothing.

    Args:
        data: (federation, seed, rounds) -> the federation with disturbed data; the seed is that of the data.
        lost: (round, selected clients, seed) -> those whose training in this round is lost.
        delays: (round, trained clients, seed) -> by client, how many rounds its upload is late; others are on time.
        answers: (round, local steps by selected client, seed) -> when they answer; those beyond the limit are lost.
        uploads: (what the clients of a round send, seed) -> the messages that are sent in its place.
    """

    data: Callable[[Federation, int, int], DisturbedData] | None = None
    lost: Callable[[int, Sequence[int], int], set[int]] | None = None
    delays: Callable[[int, Sequence[int], int], Mapping[int, int]] | None = None
    answers: Callable[[int, Mapping[int, int], int], AnswerTimes] | None = None
    uploads: Callable[[SentUploads, int], Messages] | None = None


def refuse_share(name: str, value: float) -> None:
    """Refuses a share or a probability that is not above 0 and at most 1."""
    refuse_outside(name, value, 0, 1)
    if value == 0:
        raise UserError(f"{name} must be above 0, got 0; leave the disturbance out instead")


def drawn_clients(share: float, population: int, seed: int) -> tuple[int, ...]:
    """Draws a share of the clients that train, at least one; a larger share holds all clients of a smaller one.

    >>> set(drawn_clients(0.2, 10, seed=3)) < set(drawn_clients(0.5, 10, seed=3))
    True
    """
    order = np.random.default_rng(derive(seed, "clients")).permutation(population)
    return tuple(sorted(order[: max(round(share * population), 1)].tolist()))


def drawn_in_round(probability: float, round: int, clients: Iterable[int], seed: int) -> set[int]:
    """Draws each client with a probability, in each round anew and independently of the others."""
    return {
        client
        for client in clients
        if np.random.default_rng(derive(seed, "round", round, client)).random() < probability
    }


def with_targets(
    federation: Federation, clients: Iterable[int], splits: Sequence[str], change: Change
) -> Federation:
    """Returns the federation with other targets in some splits of some clients, from the first round on."""
    y = federation.y.copy()
    _rewrite(y, federation, clients, splits, change)
    return replace(federation, y=y)


def with_inputs(
    federation: Federation, clients: Iterable[int], splits: Sequence[str], change: Change
) -> Federation:
    """Returns the federation with other inputs in some splits of some clients, from the first round on."""
    x = federation.x.copy()
    _rewrite(x, federation, clients, splits, change)
    return replace(federation, x=x)


def _rewrite(
    pool: Rows, federation: Federation, clients: Iterable[int], splits: Sequence[str], change: Change
) -> None:
    """Writes changed rows over the old ones; no row belongs to two clients or two splits."""
    for client in clients:
        for split in splits:
            rows = getattr(federation.clients[client], split)
            if len(rows):
                pool[rows] = change(pool[rows], client, split)


def from_round(federation: Federation, first: int, change: Callable[[Federation], Federation]) -> Federation:
    """Returns the federation whose clients hold other rows from the round ``first`` on, counted from 0.

    Args:
        change: returns a federation whose pool begins with that of the one given, and whose clients hold rows of it.
    """
    phases = [LaterRows(0, federation.clients), *federation.later]
    before = [phase for phase in phases if phase.first < first]
    active = [phase for phase in phases if phase.first <= first][-1]
    after = []
    for phase in [LaterRows(first, active.clients), *(phase for phase in phases if phase.first > first)]:
        federation = change(replace(federation, clients=phase.clients, later=()))
        after.append(LaterRows(phase.first, federation.clients))
    whole = [*before, *after]
    return replace(federation, clients=whole[0].clients, later=tuple(whole[1:]))


def with_copies(
    federation: Federation, clients: Iterable[int], change: Callable[[Rows, Rows], tuple[Rows, Rows]]
) -> Federation:
    """Returns the federation in which some clients hold changed copies of their rows, added to the end of the pool.

    Args:
        change: (x, y) -> (x, y) of some rows.
    """
    changed, end = dict.fromkeys(clients), len(federation.y)
    held, xs, ys = list(federation.clients), [federation.x], [federation.y]
    for client in changed:
        rows = np.concatenate(held[client])
        x, y = change(federation.x[rows], federation.y[rows])
        xs.append(x)
        ys.append(y)
        edges = np.cumsum([0, *map(len, held[client])]) + end
        held[client] = ClientRows(*(np.arange(a, b) for a, b in pairwise(edges)))
        end += len(rows)
    return replace(federation, x=np.concatenate(xs), y=np.concatenate(ys), clients=Clients(held))
