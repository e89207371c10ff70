"""A client's rows, cut in three."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from idiolect.errors import UserError
from idiolect.federation import split_rows

SHARES = st.floats(0, 0.6, allow_nan=False)


@given(n=st.integers(1, 200), valid=SHARES, test=SHARES, seed=st.integers(0, 9))
def test_split_is_disjoint_and_covers_or_is_refused(n, valid, test, seed):
    rows = np.arange(100, 100 + n)
    least = (max(int(valid * n + 1e-9), 1) if valid else 0) + (max(int(test * n + 1e-9), 1) if test else 0)
    if n <= least:
        with pytest.raises(UserError, match=f"client 7 holds {n} samples, too few"):
            split_rows(rows, 7, valid=valid, test=test, seed=seed)
        return
    parts = split_rows(rows, 7, valid=valid, test=test, seed=seed)
    assert sorted(np.concatenate(parts)) == rows.tolist()
    assert len(parts.train) >= 1
    assert (len(parts.valid) > 0) == (valid > 0)
    assert (len(parts.test) > 0) == (test > 0)


@pytest.mark.parametrize(
    ("n", "valid", "test", "sizes"),
    [
        (10, 0.2, 0.2, (6, 2, 2)),
        (10, 0.1, 0.2, (7, 1, 2)),
        (100, 0.29, 0.58, (13, 29, 58)),  # 0.29 * 100 is 28.999...
        (3, 0.01, 0.01, (1, 1, 1)),
        (5, 0, 0, (5, 0, 0)),
        (9, 0.2, 0.2, (7, 1, 1)),
    ],
)
def test_split_sizes_are_floors_with_at_least_one(n, valid, test, sizes):
    parts = split_rows(np.arange(n), 0, valid=valid, test=test, seed=0)
    assert tuple(map(len, parts)) == sizes


def test_split_is_the_same_for_the_same_seed_and_differs_by_client_and_seed():
    rows = np.arange(50)
    first = split_rows(rows, 3, valid=0.2, test=0.2, seed=0)
    again = split_rows(rows, 3, valid=0.2, test=0.2, seed=0)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    for client, seed in ((4, 0), (3, 1)):
        other = split_rows(rows, client, valid=0.2, test=0.2, seed=seed)
        assert not np.array_equal(first.test, other.test)


@given(n=st.integers(10, 60), valid=st.floats(0.1, 0.4))
def test_test_part_does_not_depend_on_the_validation_share(n, valid):
    assume(int(valid * n) + int(0.2 * n) + 2 < n)
    rows = np.arange(n)
    without = split_rows(rows, 0, valid=0, test=0.2, seed=0)
    with_some = split_rows(rows, 0, valid=valid, test=0.2, seed=0)
    assert np.array_equal(without.test, with_some.test)


def test_split_leaves_its_input_as_it_was():
    rows = np.arange(20)
    split_rows(rows, 0, valid=0.2, test=0.2, seed=0)
    assert rows.tolist() == list(range(20))


def test_refusal_names_client_sizes_and_remedy():
    with pytest.raises(UserError) as caught:
        split_rows(np.arange(2), 5, valid=0.2, test=0.2, seed=0)
    assert str(caught.value) == (
        "client 5 holds 2 samples, too few for training beside 1 for validation and 1 for testing; "
        "use fewer clients or another partition"
    )
