"""Student's t: quantiles against printed tables, an interval by hand."""

from __future__ import annotations

import math

import pytest

from idiolect.experiments.interval import t_interval, t_quantile

PRINTED = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    9: 2.262,
    20: 2.086,
    29: 2.045,
    120: 1.980,
}


@pytest.mark.parametrize(("degrees", "t"), PRINTED.items())
def test_quantile_is_the_printed_one(degrees, t):
    assert t_quantile(0.975, degrees) == pytest.approx(t, abs=6e-4)


def test_other_levels():
    assert t_quantile(0.95, 2) == pytest.approx(2.920, abs=6e-4)
    assert t_quantile(0.995, 1) == pytest.approx(63.657, abs=6e-3)


def test_interval_by_hand():
    """Mean 5, s = sqrt(((4-5)^2 + (5-5)^2 + (6-5)^2) / 2) = 1, t_2 = 4.303."""
    low, high = t_interval([4.0, 5.0, 6.0])
    assert (low, high) == pytest.approx((5 - 4.303 / math.sqrt(3), 5 + 4.303 / math.sqrt(3)), abs=1e-3)


def test_one_value_has_no_interval():
    assert t_interval([3.0]) is None
    assert t_interval([3.0, 3.0]) == (3.0, 3.0)
