"""Rows of leaves: what is put in comes out, wherever it has been."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from idiolect.engines.cohort.cuda.lane_assignment import LaneMemory

KINDS = [
    (torch.Size([]), torch.float64),
    (torch.Size([5]), torch.float32),
    (torch.Size([2, 3]), torch.float64),
    (torch.Size([4, 3, 2, 2]), torch.float64),
    (torch.Size([]), torch.int64),
]


def drawn(n_lanes: int) -> dict[int, Tensor]:
    random = torch.Generator().manual_seed(n_lanes)
    return {
        n: torch.randint(1, 99, (n_lanes, *size), generator=random).to(dtype)
        for n, (size, dtype) in enumerate(KINDS)
    }


def assert_holds(memory: LaneMemory, leaves: dict[int, Tensor]) -> None:
    for n, leaf in leaves.items():
        assert torch.equal(memory.leaves[n], leaf)


@pytest.mark.parametrize(("n_rows", "width"), [(1, 1), (1, 6), (6, 1)])
def test_what_is_filled_in_is_there(n_rows, width):
    memory = LaneMemory.zeros(KINDS, n_rows, width, torch.device("cpu"))
    leaves = drawn(n_rows * width)
    memory.fill(leaves)
    assert_holds(memory, leaves)
    assert_holds(memory.clone(), leaves)


def test_leaves_come_back_from_the_lanes_they_were_seated_on():
    memory, others = (LaneMemory.zeros(KINDS, 4, 1, torch.device("cpu")) for _ in range(2))
    leaves, lane_of = drawn(4), torch.tensor([2, 0, 3, 1])
    others.fill(leaves)
    memory.copy_rows(others, lane_of)
    assert_holds(memory, {n: leaf[lane_of.argsort()] for n, leaf in leaves.items()})
    for n, leaf in leaves.items():
        assert torch.equal(memory.copied(n, lane_of), leaf) and memory.copied(n, lane_of).is_contiguous()
        memory.copied(n, None).zero_()
        assert memory.leaves[n].all()


def test_a_row_is_its_part_of_all_leaves():
    memory = LaneMemory.zeros(KINDS, 4, 1, torch.device("cpu"))
    leaves = drawn(4)
    memory.fill(leaves)
    for n, leaf in enumerate(memory.row(2)):
        assert torch.equal(leaf, leaves[n][2:3])
        assert leaf.data_ptr() == memory.leaves[n][2:].data_ptr()


@pytest.mark.parametrize(("n_rows", "width"), [(1, 3), (3, 1)])
def test_lanes_are_made_of_all_their_leaves(n_rows, width):
    lanes = LaneMemory.zeros(KINDS, n_rows, width, torch.device("cpu"))
    clients = LaneMemory.zeros(KINDS, 5, 1, torch.device("cpu"))
    leaves = drawn(5)
    clients.fill(leaves)
    for part, other in zip(lanes.lanes(width > 1), clients.lanes(width > 1), strict=True):
        part[2].copy_(other[4])
    for n, leaf in leaves.items():
        assert torch.equal(lanes.leaves[n][2], leaf[4]) and not lanes.leaves[n][:2].any()


def test_lanes_in_step_lie_beside_each_other_and_kernels_with_channels_last():
    memory = LaneMemory.zeros(KINDS, 1, 3, torch.device("cpu"))
    assert memory.leaves[2].is_contiguous()
    assert memory.leaves[3].movedim(-3, -1).is_contiguous()
    assert all(memory.leaves[n].storage_offset() % 64 == 0 for n in range(len(KINDS)))
