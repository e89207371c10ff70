"""The rows used last, up to a size; the ones changed are written when they leave."""

from __future__ import annotations

import pytest
import torch

from idiolect.federation.store.cache import OVERHEAD, CachedRow, RowCache

ROW = 1000
FULL = 3 * (ROW + OVERHEAD)  # room for three rows


class Written(list):
    """(client, number in its row) in order."""

    def __call__(self, client: int, row: CachedRow) -> None:
        (number,) = row.content.unique().tolist()
        self.append((client, number))


@pytest.fixture
def written() -> Written:
    return Written()


def row(number: int, size: int = ROW) -> CachedRow:
    return CachedRow(torch.full((size,), number, dtype=torch.uint8), number % 2)


def cache_of(written: Written, *clients: int, changed: bool = True) -> RowCache:
    cache = RowCache(FULL, ROW, 100, written)
    for client in clients:
        cache.put(client, row(client), changed)
    return cache


def test_row_used_longest_ago_leaves_first(written: Written) -> None:
    cache = cache_of(written, 1, 2, 3)
    assert cache.get(1) is not None
    cache.put(4, row(4), changed=True)
    assert written == [(2, 2)]
    cache.put(5, row(5), changed=True)
    assert written == [(2, 2), (3, 3)]
    assert [client in cache for client in (1, 2, 3, 4, 5)] == [True, False, False, True, True]


def test_rows_are_those_that_were_put(written: Written) -> None:
    cache = cache_of(written, 1, 2, 3)
    cache.put(2, row(9, 10), changed=True)
    cache.put(4, row(4, 500), changed=True)
    for client, number, size in ((2, 9, 10), (3, 3, ROW), (4, 4, 500)):
        found = cache.get(client)
        assert found is not None and found.layout == number % 2
        assert found.content.tolist() == [number] * size
    assert cache.get(1) is None and written == [(1, 1)]


def test_row_that_did_not_change_leaves_without_a_word(written: Written) -> None:
    cache = cache_of(written, 1, 2, 3, 4, changed=False)
    assert len(cache) == 3 and cache.get(1) is None and written == []


def test_changed_row_stays_changed_when_it_is_read_in_again(written: Written) -> None:
    cache = cache_of(written, 1)
    cache.put(1, row(9), changed=False)
    for client in (2, 3, 4):
        cache.put(client, row(client), changed=False)
    assert written == [(1, 9)]


def test_row_leaves_with_its_last_content(written: Written) -> None:
    cache = cache_of(written, 1, 2, 3)
    cache.put(1, row(7), changed=True)
    cache.get(2), cache.get(3)
    cache.put(4, row(4), changed=True)
    assert written == [(1, 7)]


@pytest.mark.parametrize("limit", [0, ROW + OVERHEAD - 1])
def test_cache_smaller_than_a_row_lets_it_pass(limit: int, written: Written) -> None:
    cache = RowCache(limit, ROW, 100, written)
    cache.put(1, row(1), changed=True)
    cache.put(2, row(2), changed=False)
    assert written == [(1, 1)] and len(cache) == 0 and cache.get(1) is None


def test_cache_takes_no_more_memory_than_there_can_be_rows(written: Written) -> None:
    cache = RowCache(10**15, ROW, 2, written)
    for client in (0, 1):
        cache.put(client, row(client), changed=True)
    assert len(cache) == 2 and written == []


def test_flushed_rows_stay_and_are_not_written_twice(written: Written) -> None:
    cache = cache_of(written, 3, 1)
    cache.flush()
    assert written == [(1, 1), (3, 3)]
    cache.flush()
    assert len(written) == 2 and 3 in cache
    cache.put(1, row(5), changed=True)
    cache.flush()
    assert written[2:] == [(1, 5)]


def test_cleared_cache_has_room_again(written: Written) -> None:
    cache = cache_of(written, 1, 2, 3)
    cache.clear()
    cache.flush()
    for client in (4, 5, 6):
        cache.put(client, row(client), changed=True)
    assert len(cache) == 3 and written == []


def test_rows_of_nothing_can_be_kept(written: Written) -> None:
    cache = RowCache(FULL, 0, 100, written)
    cache.put(1, CachedRow(torch.empty(0, dtype=torch.uint8), 0), changed=True)
    assert cache.get(1) is not None
