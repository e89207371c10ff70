"""Clients packed in one array behave as the tuple they were."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.federation import ClientRows, Clients, ClientSet
from idiolect.federation.clients import AT_ONCE

SIZES = [(3, 1, 2), (1, 0, 1), (0, 0, 0), (5, 2, 0)]


def some(sizes: list[tuple[int, int, int]]) -> list[ClientRows]:
    numbers = iter(np.random.default_rng(0).permutation(sum(map(sum, sizes))))
    return [
        ClientRows(*(np.array([next(numbers) for _ in range(n)], np.int64) for n in size)) for size in sizes
    ]


@pytest.mark.parametrize("sizes", [SIZES, [(1, 1, 1)] * (AT_ONCE + 5), []])
def test_packed_clients_are_the_clients(sizes: list) -> None:
    plain = some(sizes)
    packed = Clients(plain)
    assert len(packed) == len(plain)
    for found, expected in zip(packed, plain, strict=True):
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == np.int64
            np.testing.assert_array_equal(one, other)
    for part, split in enumerate(ClientRows._fields):
        assert packed.sizes(split).tolist() == [size[part] for size in sizes]


def test_indices_are_those_of_a_sequence() -> None:
    packed = Clients(some(SIZES))
    np.testing.assert_array_equal(packed[-1].train, packed[3].train)
    assert len(packed[1:3]) == 2 and packed[1:3][0].test.tolist() == packed[1].test.tolist()
    for outside in (4, -5):
        with pytest.raises(IndexError, match=f"client {outside} of 4"):
            packed[outside]


def test_class_counts_are_those_of_each_client() -> None:
    plain = some(SIZES)
    y = np.random.default_rng(1).integers(0, 4, 15)
    for split in ClientRows._fields:
        expected = [np.bincount(y[getattr(c, split)], minlength=4).tolist() for c in plain]
        assert Clients(plain).class_counts(y, 4, split).tolist() == expected


def test_members_are_a_set() -> None:
    members = ClientSet(11, [3, 10])
    members.add([0, 3])
    assert members == {0, 3, 10} and len(members) == 3 and min(members) == 0
    assert 10 in members and 1 not in members and 11 not in members and -1 not in members
    assert members.bits().nbytes == 2
    assert ClientSet.from_bits(11, members.bits()) == members
    assert list(ClientSet(4)) == []
