"""Arithmetic on trees, and the server's weighted mean."""

from typing import Any, NamedTuple

import pytest
import torch

from idiolect.core import weighted_mean
from idiolect.core.trees import (
    Rows,
    all_finite,
    any_nan,
    count_scalars,
    inner_product,
    interpolate,
    pick,
    squared_distance,
    stack,
    unstack,
    where,
    zeros_like,
)


class Pair(NamedTuple):
    first: Any
    second: Any


A = {"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "b": torch.tensor([5.0])}
B = {"w": torch.tensor([[0.0, 2.0], [1.0, 1.0]]), "b": torch.tensor([2.0])}


def test_inner_product_and_distance_run_over_all_tensors():
    assert float(inner_product(A, B)) == 0 + 4 + 3 + 4 + 10
    assert float(squared_distance(A, B)) == 1 + 0 + 4 + 9 + 9


def test_distance_covers_the_names_of_the_second_tree():
    assert float(squared_distance(A, {"b": B["b"]})) == 9
    assert float(squared_distance(A, {})) == 0


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_interpolation_weighs_the_second_tree(weight):
    expected = {name: (1 - weight) * a + weight * B[name] for name, a in A.items()}
    torch.testing.assert_close(interpolate(A, B, weight), expected, rtol=0, atol=0)


def test_interpolation_keeps_whole_numbers_of_the_first_tree():
    found = interpolate({"n": torch.tensor(3)}, {"n": torch.tensor(7)}, 0.5)
    assert found["n"].dtype == torch.int64
    assert int(found["n"]) == 3


def test_rows_of_a_stack_are_what_was_stacked():
    stacked = stack([A, B])
    assert stacked["w"].shape == (2, 2, 2)
    for row, tree in zip(unstack(stacked, 2), (A, B), strict=True):
        torch.testing.assert_close(row, tree, rtol=0, atol=0)


def test_stack_keeps_the_kinds_of_sequences():
    trees = [(Pair(A["b"] + i, [B["b"]]), {"x": A["w"]}) for i in range(3)]
    stacked = stack(trees)
    assert isinstance(stacked, tuple) and isinstance(stacked[0], Pair) and isinstance(stacked[0].second, list)
    torch.testing.assert_close(unstack(stacked, 3), trees, rtol=0, atol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_rows_with_numbers_that_are_none_are_found(bad):
    rows = torch.ones(3, 2, 2)
    rows[1, 0, 1] = bad
    assert all_finite({"x": rows, "n": torch.arange(3)}).tolist() == [True, False, True]
    found = any_nan([{"x": row, "n": torch.tensor(1)} for row in rows])
    assert found.tolist() == [False, bad != bad, False]
    assert any_nan([{}, {}]).tolist() == [False, False]


def test_where_picks_whole_trees():
    for condition, expected in ((True, A), (False, B)):
        torch.testing.assert_close(where(torch.tensor(condition), A, B), expected, rtol=0, atol=0)


def test_pick_zeros_and_count():
    assert set(pick(A, lambda name: name == "b")) == {"b"}
    assert all(leaf.abs().sum() == 0 for leaf in zeros_like(A).values())
    assert count_scalars({"model": A, "own": {"x": torch.zeros(3, 2)}}) == 5 + 6


def test_weighted_mean_normalises_its_weights():
    found = weighted_mean({"w": torch.tensor([[1.0], [5.0]])}, torch.tensor([1.0, 3.0]))
    assert found["w"].tolist() == [4.0]


def test_weighted_mean_does_not_average_whole_numbers():
    found = weighted_mean({"n": torch.tensor([4, 9])}, torch.tensor([1.0, 1.0]))
    assert found["n"].dtype == torch.int64
    assert int(found["n"]) in (4, 9)


def test_nan_is_found_in_its_row_however_trees_lie():
    trees = [{"a": torch.tensor([1.0, float("inf")]), "n": torch.tensor(3)} for _ in range(3)]
    trees[1]["a"] = torch.tensor([float("nan"), 0.0])
    assert any_nan(trees).tolist() == any_nan(Rows(stack(trees), 3)).tolist() == [False, True, False]
