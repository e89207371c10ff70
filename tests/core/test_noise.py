"""Random numbers that protect data: planned by the seed in simulations, and by nobody in deployments."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy import stats

from idiolect.core.noise import SecureNoise, SeededNoise


def test_seeded_noise_follows_from_seed_and_position_alone():
    first = SeededNoise(3).normal((2, 5), "part", 1, 7)
    assert (SeededNoise(3).normal((2, 5), "part", 1, 7) == first).all()
    for other in (SeededNoise(4).normal((2, 5), "part", 1, 7), SeededNoise(3).normal((2, 5), "part", 2, 7)):
        assert not (other == first).any()


def test_secure_noise_is_drawn_from_the_operating_system_and_never_again(monkeypatch):
    asked = []
    real = os.urandom
    monkeypatch.setattr(os, "urandom", lambda count: asked.append(count) or real(count))
    numpy_state = np.random.get_state()[1].copy()
    first, second = (SecureNoise().normal((3, 4), "part", 1, 7) for _ in range(2))
    assert not (first == second).any()
    assert sum(asked) == 2 * 4 * 2 * 12 * 8  # two answers, four draws of two uniform numbers for each of 12
    assert (np.random.get_state()[1] == numpy_state).all()


@pytest.mark.parametrize("source", [SeededNoise(0), SecureNoise()], ids=["seeded", "secure"])
def test_noise_has_the_distribution_that_it_is_asked_for(source):
    normal, uniform = source.normal((40_000,), "normal"), source.uniform((40_000,), "uniform")
    # secure numbers are new each time, so that a test at this level fails once in ten million runs
    assert stats.kstest(normal, "norm").pvalue > 1e-7
    assert stats.kstest(uniform, "uniform").pvalue > 1e-7
    assert abs(normal.var() - 1) < 6 * np.sqrt(2 / 40_000)
