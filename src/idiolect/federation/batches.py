"""Batch plans: the rows that each training step reads, decided on the host before anything runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from idiolect.core.seeds import derive

__all__ = ["BatchPlan", "batches_per_epoch", "plan_batches"]


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
    if not with_keys:
        return BatchPlan(index, mask, np.zeros_like(index))
    keys = np.random.default_rng(derive(seed, "keys", *position))
    key = keys.integers(np.iinfo(np.int64).max, size=(n_batches, batch_size))
    return BatchPlan(index, mask, key)
