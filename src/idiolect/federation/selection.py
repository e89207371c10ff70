"""Which clients take part in a round."""

from __future__ import annotations

import numpy as np

from idiolect.core.seeds import derive

__all__ = ["cohort_size", "select"]


def cohort_size(participation_rate: float, population: int) -> int:
    """``max(floor(Q * K), 1)``, guarded against 0.29 * 100 = 28.999...

    >>> cohort_size(0.29, 100), cohort_size(0.01, 10)
    (29, 1)
    """
    return max(int(participation_rate * population + 1e-9), 1)


def select(participation_rate: float, population: int, *, seed: int, round: int) -> list[int]:
    """The cohort of a round: uniform without replacement, in client-id order."""
    random = np.random.default_rng(derive(seed, "selection", round))
    chosen = random.choice(population, cohort_size(participation_rate, population), replace=False)
    return sorted(int(client) for client in chosen)
