from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from idiolect.data import Dataset, normalised
from idiolect.errors import UserError


def fields(**changes: Any) -> dict[str, Any]:
    return {
        "name": "toy",
        "train_x": np.zeros((4, 2, 3, 5), np.uint8),
        "train_y": np.array([0, 1, 2, 0]),
        "test_x": np.zeros((2, 2, 3, 5), np.uint8),
        "test_y": np.array([1, 2]),
        "n_classes": 3,
        "mean": (0.5, 0.4),
        "std": (0.2, 0.1),
        "manifest": {},
    } | changes


def test_dataset_of_good_parts_keeps_them() -> None:
    dataset = Dataset(**fields(train_ids=np.array([7, 7, 9, 9])))
    assert dataset.shape == (2, 3, 5)
    assert dataset.train_ids is not None
    assert dataset.train_ids.tolist() == [7, 7, 9, 9]


def test_dataset_without_test_rows_is_accepted() -> None:
    empty = fields(test_x=np.zeros((0, 2, 3, 5), np.uint8), test_y=np.zeros(0, np.int64))
    assert len(Dataset(**empty).test_y) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_x": np.zeros(4, np.uint8)}, r"'toy', train_x must be .* not uint8\[4\]"),
        ({"train_x": np.zeros((4, 2, 3, 5))}, r"train_x must be .* not float64"),
        ({"train_x": [1, 2]}, "train_x must be .* not list"),
        ({"train_y": np.zeros(4, np.int32)}, r"train_y must be an int64 array \[N\], not int32\[4\]"),
        ({"test_y": np.array([1, 2, 0])}, "test_x has 2 rows but test_y has 3"),
        ({"train_y": np.array([0, 1, 3, 0])}, r"train_y holds labels 0..3, .* 0..2"),
        ({"test_y": np.array([-1, 1])}, r"test_y holds labels -1..1"),
        (
            {"test_x": np.zeros((2, 1, 3, 5), np.uint8)},
            r"uint8\[2, 3, 5\] but test rows are uint8\[1, 3, 5\]",
        ),
        ({"test_x": np.zeros((2, 2, 3, 5), np.float32)}, "but test rows are float32"),
        ({"mean": (0.5,)}, "mean must hold 2 finite numbers"),
        ({"std": (0.5, float("nan"))}, "std must hold 2 finite numbers"),
        ({"std": (0.5, 0.0)}, "std must be above 0"),
        ({"train_ids": np.array([1, 2])}, "train_ids has 2 entries for 4 training rows"),
        ({"train_ids": np.zeros(4)}, r"train_ids must be an integer or string array \[N\], not float64"),
        (
            {"train_x": np.full((4, 2, 3, 5), np.nan, np.float32)},
            "train_x holds NaN: 120 values are missing, 60 of them in channel 0",
        ),
        ({"train_x": np.zeros((0, 2, 3, 5), np.uint8), "train_y": np.zeros(0, np.int64)}, "no training rows"),
    ],
)
def test_dataset_of_bad_parts_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Dataset(**fields(**changes))


def tokens(**changes: Any) -> dict[str, Any]:
    rows = {"train_x": np.zeros((4, 7), np.int64), "test_x": np.zeros((2, 7), np.int64)}
    return fields(**rows, mean=(), std=(), vocabulary=5) | changes


def test_dataset_of_tokens_has_a_vocabulary_and_three_sides() -> None:
    dataset = Dataset(**tokens(train_x=np.full((4, 7), 4)))
    assert dataset.is_tokens and dataset.vocabulary == 5
    assert dataset.shape == (1, 1, 7)
    assert not Dataset(**fields()).is_tokens


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary": None}, r"train_x must be a uint8 or float32 array .* not int64\[4, 7\]"),
        (
            {"train_x": np.zeros((4, 7), np.int32)},
            r"train_x must, with a vocabulary, be an int64 array \[N, L\]",
        ),
        ({"train_x": np.zeros((4, 1, 1, 7), np.uint8)}, r"train_x must, with a vocabulary, .* not uint8"),
        ({"train_x": np.full((4, 7), 5)}, r"train_x holds tokens 5..5, but with vocabulary=5 .* 0..4"),
        ({"test_x": np.full((2, 7), -1)}, r"test_x holds tokens -1..-1"),
        ({"test_x": np.zeros((2, 8), np.int64)}, r"train rows are int64\[7\] but test rows are int64\[8\]"),
        ({"mean": (0.5,)}, "mean must hold 0 finite numbers"),
    ],
)
def test_dataset_of_bad_tokens_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Dataset(**tokens(**changes))


@given(arrays(np.uint8, (3, 2, 2, 2)))
def test_normalised_bytes_follow_the_equation(x: np.ndarray[Any, Any]) -> None:
    mean, std = (0.3, 0.6), (0.5, 0.25)
    before = x.copy()
    found = normalised(x, mean, std)
    expected = [(x[:, c] / 255 - mean[c]) / std[c] for c in range(2)]
    np.testing.assert_allclose(found, np.stack(expected, axis=1), rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(x, before)


@given(arrays(np.float32, (2, 1, 1, 3), elements=st.floats(-9, 9, width=32)))
def test_normalised_floats_are_not_divided_by_255(x: np.ndarray[Any, Any]) -> None:
    found = normalised(x, (0.0,), (1.0,))
    np.testing.assert_array_equal(found, x)
    assert not np.shares_memory(found, x)


def test_normalised_holds_one_copy_and_writes_where_it_is_told() -> None:
    x = np.full((50, 3, 40, 40), 51, np.uint8)
    tracemalloc.start()
    found = normalised(x, (0.2,) * 3, (0.5,) * 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.1 * found.nbytes
    out = np.empty((60, 3, 40, 40), np.float32)
    normalised(x, (0.2,) * 3, (0.5,) * 3, out=out[10:])
    np.testing.assert_array_equal(out[10:], found)


def test_normalised_wrong_input_is_refused() -> None:
    with pytest.raises(UserError, match=r"not int64\[2, 2\]"):
        normalised(np.zeros((2, 2), np.int64), (0.0,), (1.0,))
    with pytest.raises(UserError, match="mean must hold 3"):
        normalised(np.zeros((1, 3, 2, 2), np.uint8), (0.5,), (0.5,))
