"""Medians of repeats, and how far they spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Spread", "paired_ratio", "spread_of"]


class Spread(NamedTuple):
    """The median of some repeats, the least and the greatest."""

    median: float
    low: float
    high: float


def spread_of(repeats: Sequence[float]) -> Spread:
    """
    >>> spread_of([3.0, 1.0, 2.0, 10.0])
    Spread(median=2.5, low=1.0, high=10.0)
    """
    return Spread(statistics.median(repeats), min(repeats), max(repeats))


def paired_ratio(base: Sequence[float], other: Sequence[float]) -> Spread:
    """How many times faster ``other`` is: base / other turn by turn, so that what slows a whole turn cancels.

    >>> paired_ratio([2.0, 4.0, 2.0], [1.0, 2.0, 4.0])
    Spread(median=2.0, low=0.5, high=2.0)
    """
    return spread_of([a / b for a, b in zip(base, other, strict=True)])
