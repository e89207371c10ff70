"""The Triton kernels on tensors: shapes, tiles, grids.

Tiles were chosen by timing on one NVIDIA H200, for 20 clients of 64 rows; docs/gpu.md has the times.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from idiolect.layers.triton_kernels import _convolution, _unpool, _weight_gradient

__all__ = ["convolution", "unpool", "weight_gradient"]

LIMIT = 1 << 31  # numbers of one client that the kernels can count; more are computed in parts


class Tile(NamedTuple):
    """What one program of a kernel works on at a time; ``part`` of the positions add up to one partial sum."""

    positions: int
    depth: int
    out: int
    warps: int = 4
    stages: int = 3
    part: int = 0
    taps_first: bool = False


def convolution(
    x: Tensor, w: Tensor, side: int, padding: int, pool: int = 1, tile: Tile | None = None
) -> tuple[Tensor, Tensor]:
    """x [C, B, H, W, I] of any strides, w [C, O, side side I] contiguous -> [C, B, H', W', O].

    Args:
        pool: side of the windows of which only the largest value is written, a power of two; 1 writes all.

    Returns:
        The values, and for each which place of its window it came from; nothing where there are no windows.
    """
    n_clients, n_rows, height, width, n_in = x.shape
    n_out = w.shape[1]
    height_out, width_out = height + 2 * padding - side + 1, width + 2 * padding - side + 1
    y = x.new_empty(n_clients, n_rows, height_out // pool, width_out // pool, n_out)
    winner = torch.empty(y.shape if pool > 1 else 0, dtype=torch.uint8, device=x.device)
    n_positions = y[0, ..., 0].numel() * pool * pool
    if max(x[0].numel(), n_positions * n_out) >= LIMIT and n_rows > 1:
        halves = [convolution(half, w, side, padding, pool, tile) for half in x.tensor_split(2, 1)]
        return torch.cat([y for y, _ in halves], 1), torch.cat(
            [winner for _, winner in halves], int(pool > 1)
        )
    tile = tile or forward_tile(n_out)
    grid = (triton.cdiv(n_positions, tile.positions), triton.cdiv(n_out, tile.out), n_clients)
    _convolution[grid](
        x, w, y, winner, n_positions, *x.stride(),
        height, width, height_out, width_out, n_in, n_out, side, padding, pool,
        tile.positions, tile.depth, tile.out, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return y, winner


def weight_gradient(x: Tensor, g: Tensor, side: int, padding: int, tile: Tile | None = None) -> Tensor:
    """x [C, B, H, W, I] of any strides, g [C, B, H', W', O] contiguous -> [C, O, side side I]."""
    n_clients, n_rows, height, width, n_in = x.shape
    _, _, height_out, width_out, n_out = g.shape
    n_positions, depth = n_rows * height_out * width_out, side * side * n_in
    if max(x[0].numel(), g[0].numel()) >= LIMIT and n_rows > 1:
        pairs = zip(x.tensor_split(2, 1), g.tensor_split(2, 1), strict=True)
        first, second = (weight_gradient(a, b.contiguous(), side, padding, tile) for a, b in pairs)
        return first + second
    tile = tile or backward_tile(x.dtype, depth, n_out)
    tiles = triton.cdiv(depth, tile.depth) * triton.cdiv(n_out, tile.out)
    parts = triton.cdiv(n_positions, tile.part)
    out = torch.empty(parts, n_clients, n_out, depth, dtype=torch.float32, device=x.device)
    _weight_gradient[(tiles, parts, n_clients)](
        x, g, out, n_positions, tile.part, *x.stride(),
        height, width, height_out, width_out, n_in, n_out, side, padding,
        tile.positions, tile.depth, tile.out, tile.taps_first, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return (out[0] if parts == 1 else out.sum(0)).to(x.dtype)


def unpool(g: Tensor, winner: Tensor, side: int, height: int, width: int) -> Tensor:
    """[N, h, w, C] contiguous, and which place of its window each value goes to -> [N, H, W, C]."""
    out = g.new_empty(g.shape[0], height, width, g.shape[3])
    block = 1024
    _unpool[(triton.cdiv(out.numel(), block),)](
        g, winner, out, out.numel(), height, width, g.shape[3], side, block, num_warps=4
    )
    return out


def forward_tile(n_out: int) -> Tile:
    if n_out > 64:
        return Tile(128, 32, 128, warps=8)
    return Tile(128, 32, max(16, triton.next_power_of_2(n_out)))


def backward_tile(dtype: torch.dtype, depth: int, n_out: int) -> Tile:
    wide = max(16, triton.next_power_of_2(n_out))
    if depth <= 32:
        return Tile(64, 32, 32, part=2048)
    if dtype == torch.float32:
        return Tile(32, 32, min(128, wide), part=1024, taps_first=True)
    return Tile(64, 64, 64, part=2048)
