"""Student's t interval, by hand with quantiles of a printed table."""

from __future__ import annotations

import math

import pytest

from idiolect.reproduction.compared_number import t_interval

PRINTED = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 10: 2.262}


@pytest.mark.parametrize(("n", "t"), PRINTED.items())
def test_interval_reaches_t_standard_errors_from_the_mean(n, t):
    """0 .. n-1 has the mean (n - 1) / 2 and the variance n (n + 1) / 12 with n - 1 below."""
    low, high = t_interval([float(value) for value in range(n)])
    reach = t * math.sqrt(n * (n + 1) / 12) / math.sqrt(n)
    assert (low, high) == pytest.approx(((n - 1) / 2 - reach, (n - 1) / 2 + reach), rel=1e-3, abs=1e-3)


def test_other_level():
    low, high = t_interval([4.0, 5.0, 6.0], level=0.9)
    assert (low, high) == pytest.approx((5 - 2.920 / math.sqrt(3), 5 + 2.920 / math.sqrt(3)), abs=1e-3)


def test_one_value_has_no_interval():
    assert t_interval([3.0]) is None
    assert t_interval([3.0, 3.0]) == (3.0, 3.0)
