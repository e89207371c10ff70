"""Clients as rows of one pool."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from idiolect.data import Dataset
from idiolect.errors import UserError
from idiolect.federation import federate, split_rows
from idiolect.partition import Partition

N, CLASSES = 24, 3


@pytest.fixture
def dataset() -> Dataset:
    random = np.random.default_rng(0)
    rows = random.integers(0, 256, (N + 6, 1, 2, 2)).astype(np.uint8)
    labels = (np.arange(N + 6) % CLASSES).astype(np.int64)
    parts = (rows[:N], labels[:N], rows[N:], labels[N:])
    return Dataset("toy", *parts, n_classes=CLASSES, mean=(0.5,), std=(0.25,), manifest={})


@pytest.fixture
def partition() -> Partition:
    return Partition((np.arange(12), np.arange(12, 20)), {"left": np.arange(20, 24)})


def test_federation_holds_the_normalised_pool_and_the_official_test_set(dataset, partition):
    made = federate(dataset, partition, valid=0.25, test=0.25, seed=0)
    np.testing.assert_allclose(made.x, (dataset.train_x / 255 - 0.5) / 0.25, rtol=1e-5, atol=1e-6)
    assert made.x.dtype == np.float32
    assert made.server_x.shape == (6, 1, 2, 2)
    np.testing.assert_array_equal(made.server_y, dataset.test_y)
    assert made.population == 2


def test_federation_splits_every_client_by_its_own_number(dataset, partition):
    made = federate(dataset, partition, valid=0.25, test=0.25, seed=3)
    for number, rows in enumerate(partition.clients):
        expected = split_rows(rows, number, valid=0.25, test=0.25, seed=3)
        for found, wanted in zip(made.clients[number], expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_class_counts_are_those_of_the_split(dataset, partition):
    made = federate(dataset, partition, valid=0.25, test=0.25, seed=0)
    for split in ("train", "valid", "test"):
        counts = made.class_counts(split)
        assert counts.shape == (2, CLASSES)
        for client, row in enumerate(counts):
            rows = getattr(made.clients[client], split)
            assert row.tolist() == [int((dataset.train_y[rows] == c).sum()) for c in range(CLASSES)]
    total = sum(made.class_counts(split) for split in ("train", "valid", "test"))
    assert total.sum(1).tolist() == [12, 8]


@pytest.mark.parametrize(("valid", "test"), [(-0.1, 0.2), (0.2, -0.1), (0.5, 0.5), (1.0, 0.0), (0.9, 0.2)])
def test_shares_that_leave_no_training_are_refused(valid, test, dataset, partition):
    with pytest.raises(UserError, match=rf"valid={valid} and test={test} must be .* leave room for training"):
        federate(dataset, partition, valid=valid, test=test, seed=0)


def test_client_without_rows_is_refused_by_number(dataset):
    holey = SimpleNamespace(clients=(np.arange(24), np.arange(0)))
    with pytest.raises(UserError, match="client 1 has no data"):
        federate(dataset, holey, valid=0, test=0, seed=0)


def test_partition_itself_refuses_an_empty_client():
    with pytest.raises(UserError, match="client 1 of the partition holds no rows"):
        Partition((np.arange(4), np.arange(0)))
