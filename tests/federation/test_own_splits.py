"""Splits that the data ask for, and preprocessing that is fitted on training rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idiolect.data import Dataset
from idiolect.errors import UserError
from idiolect.federation import Federation, Preprocessing, SplitRules, federate
from idiolect.partition import Partition, partition

RULES = SplitRules(valid=0.25, test=0.25)


def table(rows: int = 24, **changes: Any) -> Dataset:
    random = np.random.default_rng(1)
    x = random.normal([5, -3], [2, 0.5], (rows, 2)).astype(np.float32)
    given = {
        "name": "toy",
        "train_x": x,
        "train_y": (np.arange(rows) % 2).astype(np.int64),
        "test_x": x[:0],
        "test_y": np.zeros(0, np.int64),
        "n_classes": 2,
        "mean": None,
        "std": None,
        "manifest": {},
        "train_ids": np.repeat(["ann", "bo"], rows // 2),
    } | changes
    return Dataset(**given)


def federation(dataset: Dataset, rules: SplitRules = RULES, seed: int = 0) -> Federation:
    parted = partition("natural", dataset.train_labels, 0, seed, ids=dataset.train_ids)
    return federate(dataset, parted, rules, seed=seed)


def test_given_splits_are_kept_row_by_row() -> None:
    splits = (np.arange(24) % 3).astype(np.int8)
    for client, rows in enumerate(federation(table(splits=splits)).clients):
        mine = np.arange(12) + 12 * client
        for place, found in enumerate(rows):
            assert sorted(found) == mine[splits[mine] == place].tolist()


def test_given_splits_without_validation_rows_hold_a_share_of_training_rows_out() -> None:
    splits = np.where(np.arange(24) % 3 == 2, 2, 0).astype(np.int8)
    for client, rows in enumerate(federation(table(splits=splits)).clients):
        mine = np.arange(12) + 12 * client
        assert sorted([*rows.train, *rows.valid]) == mine[splits[mine] == 0].tolist()
        assert len(rows.valid) == 2
        assert sorted(rows.test) == mine[splits[mine] == 2].tolist()


@pytest.mark.parametrize(("absent", "word"), [(0, "training"), (2, "test")])
def test_a_client_without_training_or_test_rows_is_refused_by_name(absent: int, word: str) -> None:
    splits = np.where(np.arange(24) % 2, 2, 0).astype(np.int8)
    splits[12:] = 2 - absent
    with pytest.raises(UserError, match=f"leaves client 'bo' without {word} rows"):
        federation(table(splits=splits))


def test_by_time_the_last_rows_of_each_client_are_its_test_rows() -> None:
    times = np.random.default_rng(0).permutation(24).astype(np.float64)
    for rows in federation(table(times=times)).clients:
        assert tuple(map(len, rows)) == (6, 3, 3)
        assert times[rows.train].max() < times[rows.valid].min()
        assert times[rows.valid].max() < times[rows.test].min()


@given(sizes=st.lists(st.integers(1, 9), min_size=3, max_size=12), seed=st.integers(0, 5))
def test_no_group_lies_in_two_splits(sizes: list[int], seed: int) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    dataset = table(
        2 * len(groups),
        groups=np.tile(groups, 2),
        train_ids=np.repeat(["ann", "bo"], len(groups)),
    )
    for rows in federation(dataset, seed=seed).clients:
        held = [set(dataset.groups[part].tolist()) for part in rows]  # type: ignore[index]
        assert all(held)
        assert sum(map(len, held)) == len(set.union(*held)) == len(sizes)


def test_too_few_groups_for_the_splits_are_refused_by_name() -> None:
    with pytest.raises(UserError, match="client 'ann' has 2 groups, too few for 3 splits"):
        federation(table(groups=np.arange(24) % 2))


def test_a_group_that_a_partition_shares_out_is_refused() -> None:
    dataset = replace(table(groups=np.arange(24) // 4), train_ids=None)
    with pytest.raises(UserError, match="shares the rows of one group out among several clients"):
        federate(dataset, partition("iid", dataset.train_labels, 2, 0), RULES, seed=0)
    whole = Partition((np.arange(12), np.arange(12, 24)))
    assert len(federate(dataset, whole, RULES, seed=0).clients) == 2


def test_rows_are_standardised_by_training_rows_alone() -> None:
    dataset = table()
    made = federation(dataset)
    train = np.concatenate([rows.train for rows in made.clients])
    np.testing.assert_allclose(made.preprocessing.mean, dataset.train_x[train].mean(0), rtol=1e-6)
    np.testing.assert_allclose(made.preprocessing.std, dataset.train_x[train].std(0), rtol=1e-6)
    np.testing.assert_allclose(made.x[train].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(made.x[train].std(0), 1, rtol=1e-5)
    other = dataset.train_x.copy()
    other[np.concatenate([rows.test for rows in made.clients])] += 100
    assert federation(replace(dataset, train_x=other)).preprocessing == made.preprocessing


def test_newcomers_have_no_part_in_the_preprocessing() -> None:
    dataset = table(36, train_ids=np.repeat(["ann", "bo", "cy"], 12))
    made = federation(dataset, replace(RULES, newcomers=1))
    train = np.concatenate([made.clients[client].train for client in range(made.population)])
    assert made.population == 2
    np.testing.assert_allclose(made.preprocessing.mean, dataset.train_x[train].mean(0), rtol=1e-6)


def test_images_are_standardised_by_channel_on_the_unit_scale() -> None:
    images = np.random.default_rng(0).integers(0, 256, (24, 3, 4, 4)).astype(np.uint8)
    made = federation(table(train_x=images, test_x=images[:0]))
    train = np.concatenate([rows.train for rows in made.clients])
    scaled = images[train] / 255
    assert made.preprocessing.scale == 255
    np.testing.assert_allclose(made.preprocessing.mean, scaled.mean((0, 2, 3)))
    np.testing.assert_allclose(made.preprocessing.std, scaled.std((0, 2, 3)))


@pytest.mark.parametrize("fill", ["mean", "zero", "-7.5"])
def test_missing_values_are_filled_before_rows_are_standardised(fill: str) -> None:
    x = table().train_x.copy()
    x[[0, 5, 13], [0, 1, 0]] = np.nan
    made = federation(table(train_x=x, fill=fill))
    train = np.concatenate([rows.train for rows in made.clients])
    means = np.nanmean(x[train].astype(np.float64), axis=0)
    np.testing.assert_allclose(made.preprocessing.mean, means, rtol=1e-6)
    value = {"mean": means, "zero": np.zeros(2)}.get(fill, np.full(2, -7.5))
    expected = (np.where(np.isnan(x), value, x) - means) / np.asarray(made.preprocessing.std)
    np.testing.assert_allclose(made.x, expected, rtol=1e-4, atol=1e-5)


def test_a_column_without_a_single_training_value_cannot_be_filled_by_its_mean() -> None:
    x = table().train_x.copy()
    x[:, 1] = np.nan
    with pytest.raises(UserError, match="no training row has a value of 'pulse'"):
        federation(table(train_x=x, fill="mean", feature_names=("age", "pulse")))


def test_missing_values_are_refused_by_column_unless_they_are_filled() -> None:
    x = table().train_x.copy()
    x[3, 1] = np.nan
    with pytest.raises(UserError, match="1 of them in column 'pulse'; fill them"):
        table(train_x=x, feature_names=("age", "pulse"))


def test_a_constant_column_becomes_zero() -> None:
    x = table().train_x.copy()
    x[:, 0] = 4
    assert (federation(table(train_x=x)).x[:, 0] == 0).all()


def test_targets_of_a_regression_are_standardised_by_training_rows() -> None:
    y = np.random.default_rng(2).normal(1000, 50, (24, 1)).astype(np.float32)
    made = federation(table(train_y=y, test_y=y[:0], n_classes=1, task="regression"))
    train = np.concatenate([rows.train for rows in made.clients])
    back = made.y * made.preprocessing.target_std + np.asarray(made.preprocessing.target_mean)
    np.testing.assert_allclose(back, y, rtol=1e-5)
    np.testing.assert_allclose(made.y[train].mean(), 0, atol=1e-5)
    assert made.class_counts().tolist() == [[0], [0]]


def test_positive_labels_are_counted_where_rows_have_several() -> None:
    y = np.random.default_rng(2).integers(0, 2, (24, 3)).astype(np.float32)
    made = federation(table(train_y=y, test_y=y[:0], n_classes=3, task="multilabel"))
    assert made.class_counts()[1].tolist() == y[made.clients[1].train].sum(0).tolist()


def test_preprocessing_is_written_down_and_read_again() -> None:
    fitted = federation(table()).preprocessing
    assert Preprocessing.of_plain(fitted.plain()) == fitted


def test_the_digest_tells_data_apart_that_give_other_numbers() -> None:
    base = table()
    changed = base.train_x.copy()
    changed[0, 0] += 1
    others = [
        table(train_x=changed),
        table(train_y=1 - base.train_y),
        table(train_ids=np.repeat(["ann", "cy"], 12)),
        table(times=np.arange(24)),
        table(groups=np.arange(24)),
        table(fill="mean"),
        table(mean=(0.0, 0.0), std=(1.0, 1.0)),
    ]
    assert table(name="other").digest == base.digest
    assert len({base.digest, *(other.digest for other in others)}) == 8
