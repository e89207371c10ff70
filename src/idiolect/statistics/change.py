"""Who gains and who loses by going from one method to another (MAP, figure 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from idiolect.errors import refuse_outside
from idiolect.records import Run
from idiolect.statistics.users import client_table

__all__ = ["Change", "change_histogram", "changes"]


class Change(NamedTuple):
    """Bars `[edges[i], edges[i+1])`, the last closed, with `counts[i]` clients; `below` of them lose."""

    edges: np.ndarray
    counts: np.ndarray
    below: int


def changes(method: Sequence[Run], baseline: Sequence[Run], metric: str = "accuracy") -> pd.Series:
    """By client, the headline of `method` less that of `baseline`, on the same clients and seeds."""
    table = client_table({"method": method, "baseline": baseline}, metric=metric)
    return table["method"] - table["baseline"]


def change_histogram(differences: pd.Series, bins: int = 20) -> Change:
    """Counts of `differences` in bars of equal width with an edge at 0, so that no bar mixes gain and loss.

    >>> change_histogram(pd.Series([-0.2, 0.0, 0.1, 0.2]), bins=2).counts.tolist()
    [1, 3]
    """
    refuse_outside("bins", bins, 2)
    half = -(-bins // 2)
    reach = float(differences.abs().max()) or 1.0
    edges = reach * (np.arange(-half, half + 1) / half)
    counts, _ = np.histogram(differences.to_numpy(float), edges)
    return Change(edges, counts, int((differences < 0).sum()))
