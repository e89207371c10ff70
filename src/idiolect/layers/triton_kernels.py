"""Convolutions of a cohort as Triton kernels that gather patches while they multiply.

    y[c, b, h, w, :]  = sum_{i, j} x[c, b, h + i - p, w + j - p, :] @ weight[c, i, j]         (``convolution``)
    out[c, i, j]      = sum_{b, h, w} x[c, b, h + i - p, w + j - p, :]^T g[c, b, h, w, :]      (``weight_gradient``)

c counts clients.  The patches that a matrix product would need side by side are never written to memory: for a
3x3 kernel that is nine times the image.  Sums run in float32, in an order that does not depend on the device's
load, so results repeat bit for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["convolution", "weight_gradient"]


class Tile(NamedTuple):
    """What one program of a kernel works on at a time; ``part`` of the positions add up to one partial sum."""

    positions: int
    depth: int
    out: int
    warps: int = 4
    stages: int = 3
    part: int = 0


@triton.jit
def _convolution(
    x, w, y,
    n_positions, stride_c, stride_b, stride_h, stride_w, stride_i,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, HEIGHT_OUT: tl.constexpr, WIDTH_OUT: tl.constexpr,
    IN: tl.constexpr, OUT: tl.constexpr, SIDE: tl.constexpr, PADDING: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    depth: tl.constexpr = SIDE * SIDE * IN
    image, place = p // (HEIGHT_OUT * WIDTH_OUT), p % (HEIGHT_OUT * WIDTH_OUT)
    top, left = place // WIDTH_OUT - PADDING, place % WIDTH_OUT - PADDING
    corner = image * stride_b + top * stride_h + left * stride_w
    x += client * stride_c
    w += client * depth * OUT
    total = tl.zeros((BLOCK_P, BLOCK_O), tl.float32)
    for start in range(0, depth, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        tap, channel = k // IN, k % IN
        i, j = tap // SIDE, tap % SIDE
        real = (p < n_positions)[:, None] & (k < depth)[None, :]
        if PADDING > 0:
            row, column = top[:, None] + i[None, :], left[:, None] + j[None, :]
            real = real & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
        offset = i * stride_h + j * stride_w + channel * stride_i
        patch = tl.load(x + corner[:, None] + offset[None, :], mask=real, other=0.0)
        weight = tl.load(
            w + k[:, None] + o[None, :] * depth, mask=(k < depth)[:, None] & (o < OUT)[None, :], other=0.0
        )
        total = tl.dot(patch, weight, total, input_precision=PRECISION)
    y += client * n_positions * OUT
    kept = (p < n_positions)[:, None] & (o < OUT)[None, :]
    tl.store(y + p[:, None] * OUT + o[None, :], total.to(y.dtype.element_ty), mask=kept)


@triton.jit
def _weight_gradient(
    x, g, out,
    n_positions, per_part, stride_c, stride_b, stride_h, stride_w, stride_i,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, HEIGHT_OUT: tl.constexpr, WIDTH_OUT: tl.constexpr,
    IN: tl.constexpr, OUT: tl.constexpr, SIDE: tl.constexpr, PADDING: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    client, part = tl.program_id(2).to(tl.int64), tl.program_id(1)
    depth: tl.constexpr = SIDE * SIDE * IN
    blocks: tl.constexpr = (OUT + BLOCK_O - 1) // BLOCK_O
    k = tl.program_id(0) // blocks * BLOCK_K + tl.arange(0, BLOCK_K)
    o = tl.program_id(0) % blocks * BLOCK_O + tl.arange(0, BLOCK_O)
    tap, channel = k // IN, k % IN
    i, j = tap // SIDE, tap % SIDE
    offset = i * stride_h + j * stride_w + channel * stride_i
    x += client * stride_c
    g += client * n_positions * OUT
    total = tl.zeros((BLOCK_O, BLOCK_K), tl.float32)
    first = part * per_part
    for start in range(first, min(first + per_part, n_positions), BLOCK_P):
        p = start + tl.arange(0, BLOCK_P)
        image, place = p // (HEIGHT_OUT * WIDTH_OUT), p % (HEIGHT_OUT * WIDTH_OUT)
        top, left = place // WIDTH_OUT - PADDING, place % WIDTH_OUT - PADDING
        corner = image * stride_b + top * stride_h + left * stride_w
        real = (p < n_positions)[:, None] & (k < depth)[None, :]
        if PADDING > 0:
            row, column = top[:, None] + i[None, :], left[:, None] + j[None, :]
            real = real & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
        patch = tl.load(x + corner[:, None] + offset[None, :], mask=real, other=0.0)
        grad = tl.load(
            g + p[None, :] * OUT + o[:, None], mask=(o < OUT)[:, None] & (p < n_positions)[None, :], other=0.0
        )
        total = tl.dot(grad, patch, total, input_precision=PRECISION)
    out += (part * tl.num_programs(2) + client) * depth * OUT
    tl.store(out + o[:, None] * depth + k[None, :], total, mask=(o < OUT)[:, None] & (k < depth)[None, :])


def convolution(x: Tensor, w: Tensor, side: int, padding: int, tile: Tile | None = None) -> Tensor:
    """x [C, B, H, W, I] of any strides, w [C, O, side side I] contiguous -> [C, B, H', W', O]."""
    n_clients, n_rows, height, width, n_in = x.shape
    n_out = w.shape[1]
    height_out, width_out = height + 2 * padding - side + 1, width + 2 * padding - side + 1
    y = x.new_empty(n_clients, n_rows, height_out, width_out, n_out)
    n_positions = n_rows * height_out * width_out
    tile = tile or forward_tile(n_out)
    grid = (triton.cdiv(n_positions, tile.positions), triton.cdiv(n_out, tile.out), n_clients)
    _convolution[grid](
        x, w, y, n_positions, *x.stride(),
        height, width, height_out, width_out, n_in, n_out, side, padding,
        tile.positions, tile.depth, tile.out, "tf32", num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return y


def weight_gradient(x: Tensor, g: Tensor, side: int, padding: int, tile: Tile | None = None) -> Tensor:
    """x [C, B, H, W, I] of any strides, g [C, B, H', W', O] contiguous -> [C, O, side side I]."""
    n_clients, n_rows, height, width, n_in = x.shape
    _, _, height_out, width_out, n_out = g.shape
    n_positions, depth = n_rows * height_out * width_out, side * side * n_in
    tile = tile or backward_tile(x.dtype, depth, n_out)
    tiles = triton.cdiv(depth, tile.depth) * triton.cdiv(n_out, tile.out)
    parts = triton.cdiv(n_positions, tile.part)
    out = torch.empty(parts, n_clients, n_out, depth, dtype=torch.float32, device=x.device)
    _weight_gradient[(tiles, parts, n_clients)](
        x, g, out, n_positions, tile.part, *x.stride(),
        height, width, height_out, width_out, n_in, n_out, side, padding,
        tile.positions, tile.depth, tile.out, "tf32", num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return (out[0] if parts == 1 else out.sum(0)).to(x.dtype)


def forward_tile(n_out: int) -> Tile:
    if n_out > 64:
        return Tile(128, 32, 128, warps=8)
    return Tile(128, 32, max(16, triton.next_power_of_2(n_out)))


def backward_tile(dtype: torch.dtype, depth: int, n_out: int) -> Tile:
    if depth <= 32:
        return Tile(128, 32, 32, part=2048)
    if dtype == torch.float32:
        return Tile(32, 64, 32, part=1024)
    return Tile(64, 128, 64, warps=8, part=2048)
