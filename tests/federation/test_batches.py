"""Batches are planned on the host, and the plan is data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idiolect.federation import batches_per_epoch, plan_batches

POSITION = ("main", 3, 7)


def plan(n=10, n_batches=5, batch_size=4, seed=0, position=POSITION, drop_single=False):
    rows = np.arange(1000, 1000 + n)
    return plan_batches(rows, n_batches, batch_size, seed=seed, position=position, drop_single=drop_single)


@pytest.mark.parametrize(
    ("samples", "batch_size", "drop_single", "expected"),
    [
        (8, 4, False, 2),
        (9, 4, False, 3),
        (9, 4, True, 2),
        (10, 4, True, 3),
        (3, 4, False, 1),
        (1, 4, False, 1),
        (1, 4, True, 0),
        (0, 4, False, 0),
    ],
)
def test_batches_per_epoch_counts_the_trailing_batch(samples, batch_size, drop_single, expected):
    assert batches_per_epoch(samples, batch_size, drop_single) == expected


@given(n=st.integers(1, 40), batch_size=st.integers(1, 12), epochs=st.integers(1, 3))
def test_every_epoch_is_a_permutation(n, batch_size, epochs):
    per_epoch = batches_per_epoch(n, batch_size, False)
    made = plan(n, per_epoch * epochs, batch_size)
    for epoch in range(epochs):
        part = slice(epoch * per_epoch, (epoch + 1) * per_epoch)
        assert sorted(made.index[part][made.mask[part]]) == list(range(1000, 1000 + n))


@given(n=st.integers(2, 40), batch_size=st.integers(2, 12), drop_single=st.booleans())
def test_longer_plan_begins_with_the_shorter(n, batch_size, drop_single):
    short = plan(n, 3, batch_size, drop_single=drop_single)
    long = plan(n, 8, batch_size, drop_single=drop_single)
    for a, b in zip(short, long, strict=True):
        np.testing.assert_array_equal(a, b[:3])


@given(n=st.integers(2, 40), batch_size=st.integers(2, 12))
def test_no_batch_of_one_where_single_rows_are_dropped(n, batch_size):
    sizes = plan(n, 7, batch_size, drop_single=True).mask.sum(1)
    assert sizes.min() >= 2


@given(n=st.integers(1, 40), batch_size=st.integers(1, 12), n_batches=st.integers(0, 9))
def test_mask_is_true_for_leading_rows_and_index_zero_elsewhere(n, batch_size, n_batches):
    made = plan(n, n_batches, batch_size)
    assert made.index.shape == made.mask.shape == made.key.shape == (n_batches, batch_size)
    assert (np.sort(~made.mask, axis=1) == ~made.mask).all(), "padding stands before a real row"
    assert (made.index[~made.mask] == 0).all()
    assert (made.index[made.mask] >= 1000).all()
    assert made.mask.any(1).all()


def test_single_row_that_is_dropped_leaves_an_empty_plan():
    made = plan(n=1, n_batches=2, drop_single=True)
    assert not made.mask.any()


def test_plan_is_the_same_for_the_same_position():
    for a, b in zip(plan(), plan(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("position", [("other", 3, 7), ("main", 4, 7), ("main", 3, 8), ("main", 7, 3)])
def test_plan_differs_at_another_position(position):
    here, there = plan(n=30, n_batches=8), plan(n=30, n_batches=8, position=position)
    assert not np.array_equal(here.index, there.index)
    assert not np.array_equal(here.key, there.key)


def test_plan_differs_by_seed_and_by_epoch():
    here = plan(n=30, n_batches=16)
    assert not np.array_equal(here.index, plan(n=30, n_batches=16, seed=1).index)
    assert not np.array_equal(here.index[:8], here.index[8:])


def test_keys_of_examples_are_distinct_and_not_negative():
    keys = plan(n=64, n_batches=16).key
    assert keys.dtype == np.int64 and keys.min() >= 0
    assert len(np.unique(keys)) == keys.size
