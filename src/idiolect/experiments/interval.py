"""Student's t interval of a mean over few seeds.

    mean -+ t_{n-1, 0.975} s / sqrt(n)            Student, Biometrika 6, 1908

The distribution function for whole degrees of freedom is the finite sum of Abramowitz and Stegun, 26.7.3-4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

__all__ = ["t_interval", "t_quantile"]


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """The interval of the mean, or None for fewer than two values.

    >>> [round(bound, 3) for bound in t_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    if len(values) < 2:
        return None
    reach = t_quantile((1 + level) / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - reach, fmean(values) + reach


def t_quantile(share: float, degrees: int) -> float:
    """t with P(T <= t) = share, for a share above one half, by bisection."""
    low, high = 0.0, 1.0
    while _below(high, degrees) < share:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, degrees) < share else (low, middle)
    return (low + high) / 2


def _below(t: float, degrees: int) -> float:
    """P(T <= t) for t >= 0."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine, sine = math.cos(angle), math.sin(angle)
    term = cosine if degrees % 2 else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(3 if degrees % 2 else 2, degrees - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    inside = 2 / math.pi * (angle + sine * total) if degrees % 2 else sine * total
    return 0.5 + inside / 2
