"""Student's t interval of a mean over few seeds.

mean -+ t_{n-1, 0.975} s / sqrt(n)            Student, Biometrika 6, 1908
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from scipy.special import stdtrit

__all__ = ["t_interval"]


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """The interval of the mean, or None for fewer than two values.

    >>> [round(bound, 3) for bound in t_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    if len(values) < 2:
        return None
    reach = float(stdtrit(len(values) - 1, (1 + level) / 2)) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - reach, fmean(values) + reach
