"""k classes per client: FedPHP's scenes, FedPer's and PersFL's DS-1."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idiolect.errors import UserError
from idiolect.partition import label_k
from idiolect.partition.label_k import assign_classes

CIFAR10 = np.repeat(np.arange(10), 5000)
CIFAR100 = np.repeat(np.arange(100), 500)


def class_counts(labels, made):
    """[K, C]"""
    return np.array([np.bincount(labels[rows], minlength=labels.max() + 1) for rows in made.clients])


def test_cifar10_100_5_gives_500_rows_of_5_classes_each():
    counts = class_counts(CIFAR10, label_k(CIFAR10, 100, seed=0, k=5))
    assert (counts.sum(axis=1) == 500).all()
    assert ((counts == 100).sum(axis=1) == 5).all()


def test_cifar100_100_20_gives_500_rows_of_20_classes_each():
    counts = class_counts(CIFAR100, label_k(CIFAR100, 100, seed=0, k=20))
    assert ((counts == 25).sum(axis=1) == 20).all()
    assert (counts.sum(axis=1) == 500).all()


def test_cifar100_20_5_gives_every_class_to_one_client():
    made = label_k(CIFAR100, 20, seed=3, k=5)
    counts = class_counts(CIFAR100, made)
    assert ((counts > 0).sum(axis=0) == 1).all()
    assert (counts.sum(axis=1) == 2500).all()
    assert made.dropped == {}


@pytest.mark.parametrize("k", [4, 8, 10])
def test_fedper_gives_every_class_to_k_of_ten_clients(k):
    counts = class_counts(CIFAR10, label_k(CIFAR10, 10, seed=1, k=k))
    assert ((counts > 0).sum(axis=1) == k).all()
    assert ((counts > 0).sum(axis=0) == k).all()
    assert (counts.sum(axis=1) == 5000).all()


@settings(max_examples=60, deadline=2000)
@given(data=st.data(), n_classes=st.integers(1, 15), n_clients=st.integers(1, 30), seed=st.integers(0, 10**6))
def test_clients_hold_k_distinct_classes_assigned_evenly(data, n_classes, n_clients, seed):
    k = data.draw(st.integers(1, n_classes))
    held = assign_classes(np.random.default_rng(seed), n_classes, n_clients, k, allow_duplicates=False)
    assert held.max() == 1
    assert (held.sum(axis=1) == k).all()
    assert np.ptp(held.sum(axis=0)) <= 1


def test_straddling_client_is_uniform_over_the_other_classes():
    # C = 3, k = 2: client 1 holds the class that client 0 left and, equally often, each of the two others.
    second = [assign_classes(np.random.default_rng(seed), 3, 2, 2, False) for seed in range(2000)]
    left = [int(np.flatnonzero(held[0] == 0)[0]) for held in second]
    assert all(held[1, c] == 1 for held, c in zip(second, left, strict=True))
    other = [
        int(np.flatnonzero(held[1])[np.flatnonzero(held[1]) != c][0])
        for held, c in zip(second, left, strict=True)
    ]
    upper = np.mean([o == max({0, 1, 2} - {c}) for o, c in zip(other, left, strict=True)])
    assert 0.45 < upper < 0.55


def test_duplicates_come_only_when_allowed():
    distinct = class_counts(CIFAR10, label_k(CIFAR10, 20, seed=0, k=8))
    doubled = class_counts(CIFAR10, label_k(CIFAR10, 20, seed=0, k=8, allow_duplicates=True))
    assert ((distinct > 0).sum(axis=1) == 8).all()
    assert ((doubled > 0).sum(axis=1) < 8).any()
    assert (doubled.sum(axis=1) == 8 * 312).all()


@settings(max_examples=40, deadline=2000)
@given(
    sizes=st.lists(st.integers(40, 90), min_size=2, max_size=8),
    n_clients=st.integers(2, 12),
    seed=st.integers(0, 999),
)
def test_share_is_the_floor_of_rows_over_holders(sizes, n_clients, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    counts = class_counts(labels, label_k(labels, max(n_clients, len(sizes)), seed=seed, k=2))
    for c, size in enumerate(sizes):
        holders = (counts[:, c] > 0).sum()
        assert set(counts[:, c]) <= {0, size // holders}


def test_leftover_of_equal_shares_is_dropped_and_counted():
    labels = np.repeat([0, 1], [10, 11])
    made = label_k(labels, 3, seed=0, k=2)
    assert made.report(labels)["dropped"] == {"leftover of equal shares": 1 + 2}


def test_rows_of_a_class_are_shuffled():
    made = label_k(np.zeros(100, dtype=int), 2, seed=0, k=1)
    assert made.clients[0].tolist() != list(range(50))


def test_skew_changes_numbers_per_class_but_not_totals():
    counts = class_counts(CIFAR10, label_k(CIFAR10, 10, seed=2, k=4, within_client_skew=0.5))
    assert ((counts > 0).sum(axis=1) == 4).all()
    assert (np.abs(counts.sum(axis=1) - 5000) <= 4).all()
    assert (counts.sum(axis=0) <= 5000).all()
    assert all(np.ptp(row[row > 0]) > 100 for row in counts)


def test_more_skew_spreads_numbers_further():
    def spread(skew):
        counts = class_counts(CIFAR10, label_k(CIFAR10, 10, seed=2, k=4, within_client_skew=skew))
        return counts[counts > 0].std()

    assert spread(0.0) == 0
    assert 0 < spread(0.1) < spread(0.5) < spread(0.9)


def test_skew_that_loses_a_class_is_refused_by_client():
    labels = np.repeat(np.arange(4), 8)
    with pytest.raises(UserError, match=r"within_client_skew leaves client \d+ without any of class \d"):
        label_k(labels, 8, seed=0, k=4, within_client_skew=0.95)


@pytest.mark.parametrize(
    ("options", "n_clients", "message"),
    [
        ({"k": 11}, 10, r"k=11 must be a whole number from 1 to 10 \(the number of classes\)"),
        ({"k": 0}, 10, "k=0 must be a whole number from 1 to 10"),
        ({"k": 2.0}, 10, "k=2.0 must be a whole number"),
        ({"k": 2}, 4, "k=2 classes for each of n_clients=4 .* must be at least 10"),
        ({"allow_duplicates": 1}, 10, "allow_duplicates=1 must be True or False"),
        ({"within_client_skew": -0.1}, 10, "within_client_skew=-0.1 must be a number from 0 to 0.95"),
        ({"within_client_skew": 1}, 10, "within_client_skew=1 must be a number from 0 to 0.95"),
    ],
)
def test_wrong_option_is_refused_with_its_range(options, n_clients, message):
    with pytest.raises(UserError, match=message):
        label_k(CIFAR10, n_clients, seed=0, **options)


def test_class_with_too_few_rows_is_refused_by_name():
    labels = np.repeat([4, 7], [100, 2])
    with pytest.raises(UserError, match="class 7 has 2 samples for 5 shares"):
        label_k(labels, 5, seed=0, k=2)
