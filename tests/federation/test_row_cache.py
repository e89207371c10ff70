"""The rows used last, up to a size; the ones changed come back to be written."""

from __future__ import annotations

import torch

from idiolect.federation.row_cache import OVERHEAD, Row, RowCache

ROW = 1000
FULL = 3 * (ROW + OVERHEAD)  # room for three rows


def row(number: int, size: int = ROW) -> Row:
    return Row(torch.full((size,), number, dtype=torch.uint8), 0)


def cache_of(*clients: int) -> RowCache:
    cache = RowCache(FULL)
    for client in clients:
        assert cache.put(client, row(client), changed=True) == {}
    return cache


def test_row_used_longest_ago_leaves_first() -> None:
    cache = cache_of(1, 2, 3)
    assert cache.get(1) is not None
    assert list(cache.put(4, row(4), changed=True)) == [2]
    assert list(cache.put(5, row(5), changed=True)) == [3]
    assert [client in cache for client in (1, 2, 3, 4, 5)] == [True, False, False, True, True]


def test_row_that_did_not_change_leaves_without_a_word() -> None:
    cache = RowCache(FULL)
    for client in (1, 2, 3, 4):
        assert cache.put(client, row(client), changed=False) == {}
    assert len(cache) == 3 and cache.get(1) is None


def test_changed_row_stays_changed_when_it_is_read_in_again() -> None:
    cache = cache_of(1)
    cache.put(1, row(9), changed=False)
    left = [client for c in (2, 3, 4) for client in cache.put(c, row(c), changed=False)]
    assert left == [1]


def test_row_leaves_with_its_last_content() -> None:
    cache = cache_of(1, 2, 3)
    cache.put(1, row(7), changed=True)
    cache.get(2), cache.get(3)
    left = cache.put(4, row(4), changed=True)
    assert left[1].content.unique().tolist() == [7]


def test_size_counts_what_is_there_now() -> None:
    cache = cache_of(1)
    cache.put(1, row(1, 10), changed=True)
    cache.put(2, row(2, 2 * ROW), changed=True)
    assert len(cache) == 2
    assert list(cache.put(3, row(3, FULL - OVERHEAD), changed=True)) == [1, 2]
    assert len(cache) == 1


def test_row_that_is_larger_than_the_cache_passes_through() -> None:
    cache = RowCache(0)
    assert list(cache.put(1, row(1), changed=True)) == [1]
    assert cache.put(1, row(1), changed=False) == {}
    assert len(cache) == 0 and cache.get(1) is None


def test_settled_rows_stay_and_are_not_given_twice() -> None:
    cache = cache_of(3, 1)
    assert list(cache.settle()) == [1, 3]
    assert cache.settle() == {} and 3 in cache
    cache.put(1, row(5), changed=True)
    assert list(cache.settle()) == [1]


def test_cleared_cache_has_room_again() -> None:
    cache = cache_of(1, 2, 3)
    cache.clear()
    assert len(cache) == 0 and cache.settle() == {}
    for client in (4, 5, 6):
        assert cache.put(client, row(client), changed=True) == {}
