"""The least time that a round can take: by arithmetic, and by memory traffic.

    floor = max(operations / peak operations per second, bytes / peak bytes per second)

A row's share of a floor is the floor divided by its time; the peaks are measured in the same run.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Floor", "Peaks", "floor_of"]


class Peaks(NamedTuple):
    """Operations per second of a large matrix product, and bytes per second of a large copy."""

    flops: float
    bytes: float

    def best(self, other: Peaks) -> Peaks:
        """
        >>> Peaks(1.0, 4.0).best(Peaks(2.0, 3.0))
        Peaks(flops=2.0, bytes=4.0)
        """
        return Peaks(max(self.flops, other.flops), max(self.bytes, other.bytes))


class Floor(NamedTuple):
    """Seconds."""

    arithmetic: float
    memory: float

    def shares(self, seconds: float) -> tuple[float, float]:
        """
        >>> Floor(1.0, 0.5).shares(4.0)
        (0.25, 0.125)
        """
        return self.arithmetic / seconds, self.memory / seconds


def floor_of(flops: float, moved: float, peaks: Peaks) -> Floor:
    """
    >>> floor_of(200.0, 30.0, Peaks(100.0, 10.0))
    Floor(arithmetic=2.0, memory=3.0)
    """
    return Floor(flops / peaks.flops, moved / peaks.bytes)
