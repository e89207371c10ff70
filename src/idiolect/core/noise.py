"""Sources of the random numbers that protect data: a seed in simulations, the operating system in deployments.

Whoever knows the seed of a run can draw its noise again and subtract it.  Seeded noise therefore shows what privacy
costs and gives none; noise that is to protect somebody comes from ``SecureNoise``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from idiolect.core.seeds import derive

__all__ = ["NoiseSource", "SecureNoise", "SeededNoise"]

SUMMED = 4  # draws whose sum is one secure normal number


class NoiseSource(Protocol):
    """Draws random numbers for a purpose at a position of the run, such as (part, round, client)."""

    @property
    def is_secure(self) -> bool:
        """Whether nobody can draw the same numbers again."""
        ...

    def uniform(self, shape: tuple[int, ...], *position: int | str) -> NDArray[np.float64]:
        """Returns numbers from U[0, 1)."""
        ...

    def normal(self, shape: tuple[int, ...], *position: int | str) -> NDArray[np.float64]:
        """Returns numbers from N(0, 1)."""
        ...


@dataclass(frozen=True)
class SeededNoise:
    """Numbers that follow from the seed of the run and the position, the same whenever they are asked for."""

    seed: int

    @property
    def is_secure(self) -> bool:
        return False

    def uniform(self, shape: tuple[int, ...], *position: int | str) -> NDArray[np.float64]:
        return np.random.default_rng(derive(self.seed, "privacy", *position)).random(shape)

    def normal(self, shape: tuple[int, ...], *position: int | str) -> NDArray[np.float64]:
        return np.random.default_rng(derive(self.seed, "privacy", *position)).standard_normal(shape)


@dataclass(frozen=True)
class SecureNoise:
    """Numbers from the operating system's secure source, whatever the position; each is drawn once and never again.

    A normal number is (g_1 + ... + g_4) / 2 of four of Box and Muller's, since the last bits of a single one tell
    something about what it was added to (Holohan and Braghin 2021, https://arxiv.org/abs/2107.10138).
    """

    @property
    def is_secure(self) -> bool:
        return True

    def uniform(self, shape: tuple[int, ...], *position: int | str) -> NDArray[np.float64]:
        bits = np.frombuffer(os.urandom(8 * int(np.prod(shape))), np.uint64) >> np.uint64(11)
        numbers: NDArray[np.float64] = bits.astype(np.float64).reshape(shape) * 2.0**-53
        return numbers

    def normal(self, shape: tuple[int, ...], *position: int | str) -> NDArray[np.float64]:
        total = np.zeros(shape)
        for _ in range(SUMMED):
            radius, angle = 1 - self.uniform(shape), self.uniform(shape)
            total += np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)
        total /= np.sqrt(SUMMED)
        return total
