"""Batch plans: the rows that each training step reads, decided on the host before anything runs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from idiolect.core.seeds import derive

__all__ = ["BatchPlan", "batches_per_epoch", "plan_batches", "plan_poisson_batches", "poisson_width"]


class BatchPlan(NamedTuple):
    """The rows of T batches of at most B rows each."""

    # the name hides tuple.index, which no plan needs
    index: NDArray[np.int64]  # type: ignore[assignment]  # [T, B] row numbers into the pool, 0 where padded
    mask: NDArray[np.bool_]  # [T, B] True for a real row
    key: NDArray[np.int64]  # [T, B] int64 randomness of each example


def batches_per_epoch(samples: int, batch_size: int, drop_single: bool) -> int:
    """Returns the number of batches in one pass over the samples.

    Args:
        drop_single: leaves out a last batch of one row, because batch normalisation needs two.
    """
    whole, rest = divmod(samples, batch_size)
    return whole + (rest > 1 or (rest == 1 and not drop_single))


def plan_batches(
    rows: NDArray[np.int64],
    n_batches: int,
    batch_size: int,
    *,
    seed: int,
    position: tuple[int | str, ...],
    drop_single: bool = False,
    with_keys: bool = True,
) -> BatchPlan:
    """Plans ``n_batches`` batches from as many shuffled passes over ``rows`` as it takes.

    Args:
        position: (stream, round, client); the same position gives the same batches, and a longer plan begins
            with the shorter one.
        with_keys: False leaves the keys zero, for a step that reads none.
    """
    per_epoch = batches_per_epoch(len(rows), batch_size, drop_single)
    index = np.zeros((n_batches, batch_size), np.int64)
    mask = np.zeros((n_batches, batch_size), bool)
    for epoch, first in enumerate(range(0, n_batches, per_epoch) if per_epoch else ()):
        order = np.random.default_rng(derive(seed, "batches", *position, epoch)).permutation(rows)
        here = slice(first, first + per_epoch)
        held = order[: index[here].size]
        index[here].reshape(-1)[: len(held)], mask[here].reshape(-1)[: len(held)] = held, True
    return BatchPlan(index, mask, _keys(index.shape, seed, position, with_keys))


def poisson_width(samples: int, batch_size: int) -> int:
    """Returns how many rows hold a batch whose examples are each taken with the probability ``batch_size / samples``.

    A batch is larger with a probability below 1e-12: the variance of its size is at most B, and Bernstein's inequality
    bounds the probability of t = 10 sqrt(B) + 12 examples more than B by exp(-t^2 / (2 B + 2 t / 3)).

    >>> poisson_width(1000, 32), poisson_width(40, 32)
    (101, 40)
    """
    return min(samples, math.ceil(batch_size + 10 * math.sqrt(batch_size) + 12))


def plan_poisson_batches(
    rows: NDArray[np.int64],
    chances: NDArray[np.float64],
    batch_size: int,
    width: int,
    *,
    seed: int,
    position: tuple[int | str, ...],
    with_keys: bool = True,
) -> BatchPlan:
    """Plans batches that take each row by itself with the probability ``min(1, batch_size / len(rows))``.

    Args:
        chances: [T, len(rows)] numbers from U[0, 1); a row is taken where its number is below the probability.
        width: rows of every batch, padding included; see ``poisson_width``.
        position, with_keys: as for ``plan_batches``.
    """
    n_batches = len(chances)
    index, mask = np.zeros((n_batches, width), np.int64), np.zeros((n_batches, width), bool)
    for t, taken in enumerate(chances * len(rows) < batch_size):
        held = rows[taken][:width]
        index[t, : len(held)], mask[t, : len(held)] = held, True
    return BatchPlan(index, mask, _keys(index.shape, seed, position, with_keys))


def _keys(
    shape: tuple[int, ...], seed: int, position: tuple[int | str, ...], with_keys: bool
) -> NDArray[np.int64]:
    if not with_keys:
        return np.zeros(shape, np.int64)
    random = np.random.default_rng(derive(seed, "keys", *position))
    return random.integers(np.iinfo(np.int64).max, size=shape)
