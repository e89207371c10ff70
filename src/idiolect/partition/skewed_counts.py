"""Gives a client different numbers of its classes without changing how much it holds.

    m_uc  <-  m_uc v_uc,  v_uc ~ U[1 - s, 1 + s],  then rows and columns rescaled in turn to their old sums

The rescaling is iterative proportional fitting (Deming and Stephan, Annals of Mathematical Statistics 1940).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["skewed_counts"]

MOST_SWEEPS = 10_000


def skewed_counts(counts: NDArray[np.int64], skew: float, random: np.random.Generator) -> NDArray[np.int64]:
    """Skews counts [K, C] of which every row and column sum is positive.

    A class sum never grows; a client's sum falls by less than one row per class it holds, for rounding down
    (once the fit has converged; it stops after 10 000 sweeps at the latest).
    A class that one client alone holds has nothing to exchange and keeps its count. `skew` s = 0 is the
    identity.
    """
    if skew == 0:
        return counts
    per_client, per_class = counts.sum(axis=1, keepdims=True), counts.sum(axis=0, keepdims=True)
    weights = counts * random.uniform(1 - skew, 1 + skew, size=counts.shape)
    for _ in range(MOST_SWEEPS):
        weights *= per_client / weights.sum(axis=1, keepdims=True)
        weights *= per_class / weights.sum(axis=0, keepdims=True)
        if np.abs(weights.sum(axis=1, keepdims=True) - per_client).max() < 1e-3:
            break
    return np.floor(weights + 1e-6).astype(np.int64)
