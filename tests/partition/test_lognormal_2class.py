"""PersFL's DS-3: pFedMe's generator."""

import numpy as np
import pytest

from idiolect.errors import UserError
from idiolect.partition import lognormal_2class

MNIST = np.repeat(np.arange(10), 6000)


def class_counts(labels, made):
    return np.array([np.bincount(labels[rows], minlength=labels.max() + 1) for rows in made.clients])


@pytest.mark.parametrize("seed", range(4))
def test_client_holds_its_own_class_and_the_next(seed):
    counts = class_counts(MNIST, lognormal_2class(MNIST, 10, seed=seed))
    for user, row in enumerate(counts):
        assert set(np.flatnonzero(row)) == {user, (user + 1) % 10}


def test_amounts_are_ten_or_at_least_610_and_differ_widely():
    sizes = []
    for seed in range(20):
        counts = class_counts(MNIST, lognormal_2class(MNIST, 10, seed=seed))
        given = counts[counts > 0]
        assert ((given == 10) | (given >= 10 + 2 * 300)).all()
        assert (given == 10).sum() <= 5
        assert ((given - 10) % 2 == 0).all()
        sizes.extend(counts.sum(axis=1))
    assert min(sizes) < 1500
    assert 1800 < np.median(sizes) < 2800
    assert max(sizes) > 5000


def test_more_than_twenty_clients_are_not_doubled():
    counts = class_counts(MNIST, lognormal_2class(MNIST, 30, seed=0, sigma=0, extra_low=100, extra_high=100))
    # sigma 0: p = (6000 - 30) / (30 * 2) = 99.5 for everyone
    assert set(counts[counts > 0]) == {10 + 99 + 100}


def test_twenty_clients_are_doubled():
    counts = class_counts(MNIST, lognormal_2class(MNIST, 20, seed=0, sigma=0, extra_low=100, extra_high=100))
    # sigma 0: p = (6000 - 20) / (20 * 2) = 149.5
    assert set(counts[counts > 0]) == {10 + 2 * (149 + 100)}


def test_assignment_that_would_use_up_a_class_is_skipped_whole():
    # one client and class, p = n - 1: m = 2 (n - 1 + extra) never fits below n - 10
    labels = np.zeros(100, dtype=int)
    made = lognormal_2class(labels, 1, seed=0, classes_per_client=1, extra_low=0, extra_high=0)
    assert [rows.size for rows in made.clients] == [10]
    assert made.report(labels)["dropped"] == {"not drawn for any client": 90}


@pytest.mark.parametrize(("extra", "expected"), [(110, 10 + 4 + 110), (111, 10)])
def test_assignment_must_leave_one_row_of_its_class(extra, expected):
    # 25 clients with a class of 125 rows each: p = (125 - 25) / 25 = 4, and 10 + 4 + 110 = 124
    labels = np.repeat(np.arange(25), 125)
    made = lognormal_2class(
        labels, 25, seed=0, classes_per_client=1, sigma=0, extra_low=extra, extra_high=extra
    )
    assert {rows.size for rows in made.clients} == {expected}


def test_clients_of_one_block_share_their_log_normal_amount():
    # C = 2, K = 30: u' = u // 15, so clients 0, 2, ..., 14 read one amount, or are skipped
    labels = np.repeat([0, 1], 20_000)
    made = lognormal_2class(labels, 30, seed=0, classes_per_client=1, extra_low=0, extra_high=0)
    sizes = {made.clients[user].size for user in range(0, 15, 2)}
    assert len(sizes - {10}) == 1


def test_three_classes_per_client_are_possible():
    counts = class_counts(MNIST, lognormal_2class(MNIST, 10, seed=0, classes_per_client=3))
    assert ((counts > 0).sum(axis=1) == 3).all()


def test_class_too_small_for_the_first_ten_rows_is_refused_by_name():
    labels = np.repeat([0, 1, 2], [500, 19, 500])
    with pytest.raises(UserError, match="class 1 has 19 samples but its clients start with 20"):
        lognormal_2class(labels, 3, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes_per_client": 11}, "classes_per_client=11 must be a whole number from 1 to 10"),
        ({"classes_per_client": 0}, "classes_per_client=0 must be a whole number from 1 to 10"),
        ({"sigma": -1}, "sigma=-1 must be a number from 0 to 10"),
        ({"extra_low": -1}, "extra_low=-1 must be a whole number from 0"),
        ({"extra_low": 5, "extra_high": 4}, "extra_high=4 must be a whole number from 5"),
    ],
)
def test_wrong_option_is_refused_with_its_range(options, message):
    with pytest.raises(UserError, match=message):
        lognormal_2class(MNIST, 10, seed=0, **options)
