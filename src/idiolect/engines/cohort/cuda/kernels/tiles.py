"""Tiles: how much one grid program of a convolution kernel works on at a time.

Sizes were chosen by timing on one NVIDIA H200, for 1, 2, 3, 6 and 20 clients of 64 rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "MULTIPROCESSORS",
    "Tile",
    "backward_tile",
    "carrying_tile",
    "count_parts",
    "forward_tile",
    "too_long",
]

MULTIPROCESSORS = 132  # of that GPU: with fewer grid programs some of them have nothing to do
LIMIT = 1 << 31  # numbers of one client that the kernels can index; more are computed in parts


class Tile(NamedTuple):
    """Sizes that one grid program works on at a time; ``part`` of the positions add up to one partial sum."""

    positions: int
    depth: int
    out: int
    warps: int = 4
    stages: int = 3
    part: int = 0
    taps_first: bool = False


def too_long(*numbers: int) -> bool:
    """Returns whether one client has more numbers than the kernels can index."""
    return max(numbers) >= LIMIT


def forward_tile(dtype: torch.dtype, n_out: int, depth: int, n_positions: int) -> Tile:
    """Returns the tile of a convolution, smaller where there is little to do.

    Args:
        n_positions: of all clients.
    """
    if n_out > 64:
        return Tile(128, 32, 128, warps=8)
    wide = _wide(n_out)
    programs = _cdiv(n_positions, 128)
    if programs > 2 * MULTIPROCESSORS:
        return Tile(128, 32, wide, warps=8 if wide == 64 and dtype == torch.float32 else 4)
    if programs > MULTIPROCESSORS:
        return Tile(64, 32, wide)
    return Tile(64, 64 if depth % 64 == 0 else 32, wide if programs > MULTIPROCESSORS // 4 else min(32, wide))


def carrying_tile(dtype: torch.dtype, n_in: int, depth: int, n_pixels: int) -> Tile:
    """Returns the tile of a gradient that is carried back to pixels of ``n_in`` channels.

    Args:
        n_pixels: of all clients.
    """
    if n_in > 64 or dtype != torch.float32:
        return forward_tile(dtype, n_in, depth, n_pixels)
    wide, programs = _wide(n_in), _cdiv(n_pixels, 64)
    if programs > 2 * MULTIPROCESSORS:
        return Tile(64, 32, wide, warps=2)
    if programs > MULTIPROCESSORS:
        return Tile(64, 32, min(32, wide), warps=2)
    return Tile(32, 64 if depth % 64 == 0 else 32, min(32, wide), warps=2)


def backward_tile(dtype: torch.dtype, depth: int, n_out: int, n_clients: int, n_positions: int) -> Tile:
    """Returns the tile of a gradient by weights, with positions in more parts where there is little to do."""
    wide = _wide(n_out)
    if depth <= 32:
        tile = Tile(64, 32, 32, part=2048)
    elif dtype == torch.float32:
        tile = Tile(32, 32, min(128, wide), warps=2 if wide <= 64 else 4, part=1024, taps_first=True)
    else:
        tile = Tile(64, 64, 64, part=2048)
    tiles = _cdiv(depth, tile.depth) * _cdiv(n_out, tile.out) * n_clients
    while tile.part > 128 and tiles * _cdiv(n_positions, tile.part) < 0.8 * MULTIPROCESSORS:
        tile = tile._replace(part=tile.part // 2)
    return tile


def count_parts(x: Tensor, g: Tensor, side: int) -> int:
    """Returns the number of partial sums that make up the gradient by weights."""
    n_clients, n_rows = x.shape[:2]
    if n_rows > 1 and too_long(x[0].numel(), g[0].numel()):
        halves = zip(x.tensor_split(2, 1), g.tensor_split(2, 1), strict=True)
        return sum(count_parts(a, b, side) for a, b in halves)
    n_positions = g[0, ..., 0].numel()
    tile = backward_tile(x.dtype, side * side * x.shape[-1], g.shape[-1], n_clients, n_positions)
    return _cdiv(n_positions, tile.part)


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _wide(n_out: int) -> int:
    return max(16, 1 << (n_out - 1).bit_length())
