"""Selection of the clients that train in a round, and of the newcomers that never train."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from idiolect.core.part import cohort_size
from idiolect.core.seeds import derive
from idiolect.errors import UserError

__all__ = ["SELECTIONS", "cohort_size", "newcomers_last", "select"]

SELECTIONS = ("fixed", "poisson")


def select(
    participation_rate: float, population: int, *, seed: int, round: int, selection: str = "fixed"
) -> list[int]:
    """Draws the cohort of a round; returns it in client-id order.

    Args:
        selection: ``fixed`` draws ``cohort_size`` clients, uniform without replacement; ``poisson`` draws every client
            by itself with the probability ``participation_rate``, so that a cohort may have any size, also none.
    """
    return list(_selected(participation_rate, population, seed, round, selection))


@lru_cache(maxsize=8)  # a round is asked for when its rows are prefetched and again when it runs
def _selected(
    participation_rate: float, population: int, seed: int, round: int, selection: str
) -> tuple[int, ...]:
    random = np.random.default_rng(derive(seed, "selection", round))
    if selection == "poisson":
        chosen = np.flatnonzero(random.random(population) < participation_rate)
    else:
        chosen = random.choice(population, cohort_size(participation_rate, population), replace=False)
    return tuple(sorted(chosen.tolist()))


def newcomers_last(n_clients: int, newcomers: int, *, seed: int) -> list[int]:
    """Returns all clients with those held out as newcomers at the end, both groups in order of their numbers.

    >>> newcomers_last(4, 0, seed=0)
    [0, 1, 2, 3]
    """
    if not 0 <= newcomers < n_clients:
        raise UserError(
            f"newcomers is {newcomers} but there are {n_clients} clients; leave at least one to train"
        )
    random = np.random.default_rng(derive(seed, "newcomers"))
    held_out = set(random.choice(n_clients, newcomers, replace=False).tolist())
    return sorted(range(n_clients), key=lambda client: (client in held_out, client))
