"""Trees come out of shared memory as they went in."""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest
import torch

from idiolect.core.trees import Rows, tree_leaves
from idiolect.engines.numpy_trees import ALIGNMENT
from idiolect.engines.pool.shared_memory import Mailbox


class Pair(NamedTuple):
    first: torch.Tensor
    second: list


TREE = {
    3: Pair(torch.arange(7.0), [torch.tensor(2), torch.zeros(0, 4), "word"]),
    "permuted": torch.arange(24, dtype=torch.float64).reshape(2, 3, 4).permute(2, 0, 1),
    "expanded": torch.ones(()).expand(5),
    "mask": torch.tensor([True, False]),
}


@pytest.mark.parametrize("way", ["view", "take"])
def test_what_comes_out_is_what_went_in(way: str) -> None:
    mailbox = Mailbox()
    found = getattr(mailbox, way)(mailbox.put(TREE))
    assert type(found[3]) is Pair
    assert found[3].second[2] == "word"
    for got, given in zip(tree_leaves(found), tree_leaves(TREE), strict=True):
        if isinstance(given, torch.Tensor):
            assert got.dtype == given.dtype
            assert got.shape == given.shape
            assert torch.equal(got, given)


def test_tensors_lie_as_aligned_as_those_of_torch() -> None:
    mailbox = Mailbox()
    tensors = [torch.ones(n) for n in (1, 3, 17, 1000)]
    assert all(leaf.data_ptr() % ALIGNMENT == 0 for leaf in mailbox.view(mailbox.put(tensors)))


def test_what_was_taken_survives_the_next_letter() -> None:
    mailbox = Mailbox()
    taken = mailbox.take(mailbox.put(torch.ones(9)))
    mailbox.put(torch.zeros(9))
    assert torch.equal(taken, torch.ones(9))


def test_a_second_mailbox_on_the_same_file_reads_what_is_put_after_the_first_grew() -> None:
    mine = Mailbox()
    theirs = Mailbox(os.dup(mine.file))  # as a worker opens it
    assert float(theirs.view(mine.put(torch.zeros(10))).sum()) == 0
    assert float(theirs.view(mine.put(torch.ones(1_000_000))).sum()) == 1_000_000
    mine.close()
    theirs.close()


def test_rows_stay_stacked() -> None:
    mailbox = Mailbox()
    rows = Rows({"x": torch.arange(6.0).view(3, 2)}, 3)
    stacked = mailbox.view_all(mailbox.put_all(rows))
    assert isinstance(stacked, Rows)
    assert torch.equal(stacked.stacked["x"], rows.stacked["x"])
    alone = mailbox.view_all(mailbox.put_all(list(rows)))
    assert not isinstance(alone, Rows)
    assert [row["x"].tolist() for row in alone] == [[0, 1], [2, 3], [4, 5]]
