"""Clients as rows of one pool."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from idiolect.data import Dataset
from idiolect.engines import Workload
from idiolect.engines.precision import PRECISIONS
from idiolect.errors import UserError
from idiolect.federation import SplitRules, federate, split_rows
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
    made = federate(dataset, partition, SplitRules(valid=0.25, test=0.25), seed=0)
    np.testing.assert_allclose(made.x, (dataset.train_x / 255 - 0.5) / 0.25, rtol=1e-5, atol=1e-6)
    assert made.x.dtype == np.float32
    assert made.server_x.shape == (6, 1, 2, 2)
    np.testing.assert_array_equal(made.server_y, dataset.test_y)
    assert made.population == 2


def test_federation_splits_every_client_by_its_own_number(dataset, partition):
    made = federate(dataset, partition, SplitRules(valid=0.25, test=0.25), seed=3)
    for number, rows in enumerate(partition.clients):
        expected = split_rows(rows, number, valid=0.25, test=0.25, seed=3)
        for found, wanted in zip(made.clients[number], expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_class_counts_are_those_of_the_split(dataset, partition):
    made = federate(dataset, partition, SplitRules(valid=0.25, test=0.25), seed=0)
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
        federate(dataset, partition, SplitRules(valid=valid, test=test), seed=0)


def test_client_without_rows_is_refused_by_number(dataset):
    holey = SimpleNamespace(clients=(np.arange(24), np.arange(0)))
    with pytest.raises(UserError, match="client 1 has no data"):
        federate(dataset, holey, SplitRules(valid=0, test=0), seed=0)


def test_partition_itself_refuses_an_empty_client():
    with pytest.raises(UserError, match="client 1 of the partition holds no rows"):
        Partition((np.arange(4), np.arange(0)))


def without_test(dataset: Dataset) -> Dataset:
    return replace(dataset, test_x=dataset.test_x[:0], test_y=dataset.test_y[:0])


def test_server_without_a_test_set_gets_the_clients_test_parts(dataset, partition):
    made = federate(without_test(dataset), partition, SplitRules(valid=0.25, test=0.25), seed=0)
    rows = np.concatenate([client.test for client in made.clients])
    assert len(rows) == 3 + 2
    np.testing.assert_array_equal(made.server_x, made.x[rows])
    np.testing.assert_array_equal(made.server_y, dataset.train_y[rows])


def test_public_samples_need_a_test_set(dataset, partition):
    with pytest.raises(UserError, match="public is 2 but the server's test set has only 0 samples"):
        federate(without_test(dataset), partition, SplitRules(valid=0.25, test=0.25, public=2), seed=0)


def test_public_samples_follow_the_pool_normalised_alike(dataset, partition):
    made = federate(dataset, partition, SplitRules(valid=0.25, test=0.25, public=2), seed=0)
    assert made.x.shape == (N + 2, 1, 2, 2) and made.public.tolist() == [N, N + 1]
    everything = (np.concatenate([dataset.train_x, dataset.test_x]) / 255 - 0.5) / 0.25
    for row in made.x[N:]:
        assert np.isclose(everything[N:], row, atol=1e-6).all(axis=(1, 2, 3)).sum() == 1
    assert len(made.server_y) == 4


@pytest.mark.parametrize("public", [0, 20])
def test_pool_of_images_is_held_once_beside_the_dataset(public):
    rows, labels = np.zeros((400, 3, 32, 32), np.uint8), np.zeros(400, np.int64)
    parts = (rows, labels, rows[:40], labels[:40])
    data = Dataset("toy", *parts, n_classes=1, mean=(0.5,) * 3, std=(0.5,) * 3, manifest={})
    tracemalloc.start()
    made = federate(
        data, Partition((np.arange(400),)), SplitRules(valid=0.1, test=0.1, public=public), seed=0
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.1 * (made.x.nbytes + made.server_x.nbytes)


# ---- tokens


@pytest.fixture
def text() -> Dataset:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 9, (N + 6, 5)), random.integers(0, CLASSES, N + 6)
    parts = (x[:N], y[:N], x[N:], y[N:])
    return Dataset("text", *parts, n_classes=CLASSES, mean=(), std=(), manifest={}, vocabulary=9)


def test_tokens_stay_whole_numbers_and_are_not_copied(text, partition):
    made = federate(text, partition, SplitRules(valid=0.25, test=0.25), seed=0)
    assert made.x is text.train_x
    np.testing.assert_array_equal(made.server_x, text.test_x)
    assert made.server_x.dtype == np.int64
    public = federate(text, partition, SplitRules(valid=0.25, test=0.25, public=2), seed=0)
    assert public.x.dtype == np.int64 and public.x.shape == (N + 2, 5)
    alone = federate(without_test(text), partition, SplitRules(valid=0.25, test=0.25), seed=0)
    np.testing.assert_array_equal(
        alone.server_x, text.train_x[np.concatenate([c.test for c in alone.clients])]
    )


@pytest.mark.parametrize(
    ("name", "dtype"), [("float32", torch.float32), ("float64", torch.float64), ("bf16", torch.float32)]
)
def test_workload_casts_numbers_and_leaves_tokens(name, dtype, dataset, text, partition):
    options = {"seed": 0, "drop_single": False, "weighting": "samples", "device": "cpu"}
    options["precision"] = PRECISIONS[name]
    for data, expected in ((dataset, dtype), (text, torch.int64)):
        made = federate(data, partition, SplitRules(valid=0.25, test=0.25), seed=0)
        work = Workload.place(made, **options)
        rows = np.arange(3)
        batch = work.batch(rows, np.ones(3, bool), rows, {"part": np.full(2, 0.25)})
        assert work.x.dtype == batch.x.dtype == expected
        assert batch.mask.dtype == batch.draws["part"].dtype == work.like.dtype == dtype
        assert batch.draws["part"].tolist() == [0.25, 0.25]
        assert {fact.dtype for fact in work.facts(0)} == {dtype}
        np.testing.assert_array_equal(batch.x.numpy(), made.x[:3].astype(batch.x.numpy().dtype))
