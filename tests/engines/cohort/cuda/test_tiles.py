"""Tiles: parts that kernels can count, whatever the layer and however many clients."""

from __future__ import annotations

import itertools

import pytest
import torch

from idiolect.engines.cohort.cuda.kernels import tiles
from idiolect.engines.cohort.cuda.kernels.tiles import (
    MULTIPROCESSORS,
    backward_tile,
    carrying_tile,
    count_parts,
    forward_tile,
)

CHANNELS = (1, 3, 6, 16, 32, 64, 200, 512)
DTYPES = (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sides_of_tiles_are_powers_of_two_that_products_take(dtype):
    for n_in, n_out, n_clients in itertools.product(CHANNELS, CHANNELS, (1, 3, 20, 100)):
        n_positions = n_clients * 64 * 13 * 13
        for tile in (
            forward_tile(dtype, n_out, 9 * n_in, n_positions),
            carrying_tile(dtype, n_in, 9 * n_out, n_positions),
            backward_tile(dtype, 9 * n_in, n_out, n_clients, 64 * 13 * 13),
        ):
            assert all(size >= 16 and size & (size - 1) == 0 for size in tile[:3])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_parts_are_whole_tiles_so_that_no_position_counts_twice(dtype):
    for n_in, n_out, n_clients in itertools.product(CHANNELS, CHANNELS, (1, 3, 20, 100)):
        tile = backward_tile(dtype, 9 * n_in, n_out, n_clients, 64 * 13 * 13)
        assert tile.part and tile.part % tile.positions == 0


def test_one_client_occupies_the_device_with_more_parts():
    one, many = (backward_tile(torch.float32, 288, 64, n_clients, 64 * 13 * 13) for n_clients in (1, 100))
    assert one.part < many.part
    assert 9 * -(-64 * 13 * 13 // one.part) >= 0.8 * MULTIPROCESSORS


def test_halves_of_what_is_too_long_have_parts_of_their_own(monkeypatch):
    x, g = torch.empty(2, 7, 9, 9, 3), torch.empty(2, 7, 7, 7, 16)
    whole = count_parts(x, g, 3)
    monkeypatch.setattr(tiles, "LIMIT", 3 * 7 * 7 * 16 + 1)
    kept = (slice(2), slice(2, 4), slice(4, 7))
    halves = [count_parts(x[:, rows], g[:, rows], 3) for rows in kept]
    assert whole < count_parts(x, g, 3) == sum(halves)
