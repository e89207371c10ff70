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
    taps_first: bool = False


@triton.jit
def _taps(start, IN: tl.constexpr, SIDE: tl.constexpr, BLOCK_K: tl.constexpr, AXIS: tl.constexpr):
    """Row, column and channel of the taps start, start + 1, ... of a patch, along the other axis than ``AXIS``."""
    if IN % BLOCK_K == 0:  # they are channels of one tap
        tap, channel = start // IN, tl.multiple_of(start % IN, BLOCK_K) + tl.arange(0, BLOCK_K)
    else:
        k = start + tl.arange(0, BLOCK_K)
        tap, channel = tl.expand_dims(k // IN, AXIS), k % IN
    return tap // SIDE, tap % SIDE, tl.expand_dims(channel, AXIS)


@triton.jit
def _patches(
    x, p, i, j, channel, n_positions, stride_b, stride_h, stride_w, stride_i,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, HEIGHT_OUT: tl.constexpr, WIDTH_OUT: tl.constexpr,
    SIDE: tl.constexpr, PADDING: tl.constexpr,
):  # fmt: skip
    """What the patches at positions p hold at the taps (i, j, channel), which lie along the other axis."""
    image, place = p // (HEIGHT_OUT * WIDTH_OUT), p % (HEIGHT_OUT * WIDTH_OUT)
    row, column = place // WIDTH_OUT - PADDING, place % WIDTH_OUT - PADDING
    corner = image * stride_b + row * stride_h + column * stride_w
    real = (p < n_positions) & (i < SIDE)
    if PADDING > 0:
        row, column = row + i, column + j
        real = real & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
    return tl.load(x + corner + (i * stride_h + j * stride_w) + channel * stride_i, mask=real, other=0.0)


@triton.jit
def _convolution(
    x, w, y,
    n_positions, stride_c, stride_b, stride_h, stride_w, stride_i,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, HEIGHT_OUT: tl.constexpr, WIDTH_OUT: tl.constexpr,
    IN: tl.constexpr, OUT: tl.constexpr, SIDE: tl.constexpr, PADDING: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    depth: tl.constexpr = SIDE * SIDE * IN
    x += client * stride_c
    w += client * depth * OUT
    total = tl.zeros((BLOCK_P, BLOCK_O), tl.float32)
    for start in range(0, depth, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        i, j, channel = _taps(start, IN, SIDE, BLOCK_K, 0)
        patch = _patches(
            x, p[:, None], i, j, channel, n_positions, stride_b, stride_h, stride_w, stride_i,
            HEIGHT, WIDTH, HEIGHT_OUT, WIDTH_OUT, SIDE, PADDING,
        )  # fmt: skip
        kept = (k < depth)[:, None] & (o < OUT)[None, :]
        weight = tl.load(w + k[:, None] + o[None, :] * depth, mask=kept, other=0.0)
        total = tl.dot(patch, weight, total, input_precision="tf32")
    y += client * n_positions * OUT
    kept = (p < n_positions)[:, None] & (o < OUT)[None, :]
    tl.store(y + p[:, None] * OUT + o[None, :], total.to(y.dtype.element_ty), mask=kept)


@triton.jit
def _weight_gradient(
    x, g, out,
    n_positions, per_part, stride_c, stride_b, stride_h, stride_w, stride_i,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, HEIGHT_OUT: tl.constexpr, WIDTH_OUT: tl.constexpr,
    IN: tl.constexpr, OUT: tl.constexpr, SIDE: tl.constexpr, PADDING: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_O: tl.constexpr, TAPS_FIRST: tl.constexpr,
):  # fmt: skip
    client, part = tl.program_id(2).to(tl.int64), tl.program_id(1)
    depth: tl.constexpr = SIDE * SIDE * IN
    blocks: tl.constexpr = (OUT + BLOCK_O - 1) // BLOCK_O
    start = tl.program_id(0) // blocks * BLOCK_K
    k = start + tl.arange(0, BLOCK_K)
    o = tl.program_id(0) % blocks * BLOCK_O + tl.arange(0, BLOCK_O)
    taps: tl.constexpr = (
        1 if TAPS_FIRST else 0
    )  # positions of a patch lie along this axis, those of g along the other
    i, j, channel = _taps(start, IN, SIDE, BLOCK_K, taps)
    o_g = tl.expand_dims(o, 1 - taps)
    x += client * stride_c
    g += client * n_positions * OUT
    total = tl.zeros((BLOCK_K, BLOCK_O) if TAPS_FIRST else (BLOCK_O, BLOCK_K), tl.float32)
    first = part * per_part
    for position in range(first, min(first + per_part, n_positions), BLOCK_P):
        p = position + tl.arange(0, BLOCK_P)
        patch = _patches(
            x, tl.expand_dims(p, 1 - taps), i, j, channel, n_positions, stride_b, stride_h, stride_w, stride_i,
            HEIGHT, WIDTH, HEIGHT_OUT, WIDTH_OUT, SIDE, PADDING,
        )  # fmt: skip
        p_g = tl.expand_dims(p, taps)
        grad = tl.load(g + p_g * OUT + o_g, mask=(p_g < n_positions) & (o_g < OUT), other=0.0)
        if TAPS_FIRST:
            total = tl.dot(patch, grad, total, input_precision="tf32")
        else:
            total = tl.dot(grad, patch, total, input_precision="tf32")
    if TAPS_FIRST:
        total = tl.trans(total)
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
        tile.positions, tile.depth, tile.out, num_warps=tile.warps, num_stages=tile.stages,
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
        tile.positions, tile.depth, tile.out, tile.taps_first, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return (out[0] if parts == 1 else out.sum(0)).to(x.dtype)


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
