"""Convolutions of a cohort in Triton: patches are gathered while they are multiplied.

    y[c, b, h, w, :]  = sum_{i, j} x[c, b, h + i - p, w + j - p, :] @ weight[c, i, j]         (``_convolution``)
    out[c, i, j]      = sum_{b, h, w} x[c, b, h + i - p, w + j - p, :]^T g[c, b, h, w, :]      (``_weight_gradient``)
    out[n, h, w, :]   = g[n, h / k, w / k, :] where the place within the window is the winner   (``_unpool``)

c counts clients.  The patches that a matrix product would need side by side are never written to memory: for a
3x3 kernel that is nine times the image.  With POOL the largest of each window is written alone.  Sums run in float32,
in an order that does not depend on the device's load, so results repeat bit for bit.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["_convolution", "_unpool", "_weight_gradient"]


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
def _places(p, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, POOL: tl.constexpr):
    """Image, row and column of positions in maps of HEIGHT x WIDTH; with POOL those of one window follow each other."""
    if POOL == 1:
        image, place = p // (HEIGHT * WIDTH), p % (HEIGHT * WIDTH)
        row, column = place // WIDTH, place % WIDTH
    else:
        across: tl.constexpr = WIDTH // POOL
        windows: tl.constexpr = HEIGHT // POOL * across
        window, inside = p // (POOL * POOL), p % (POOL * POOL)
        image, place = window // windows, window % windows
        row, column = place // across * POOL + inside // POOL, place % across * POOL + inside % POOL
    return image, row, column


@triton.jit
def _patches(
    x, p, i, j, channel, n_positions, stride_b, stride_h, stride_w, stride_i,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, HEIGHT_OUT: tl.constexpr, WIDTH_OUT: tl.constexpr,
    SIDE: tl.constexpr, PADDING: tl.constexpr, POOL: tl.constexpr,
):  # fmt: skip
    """What the patches at positions p hold at the taps (i, j, channel), which lie along the other axis."""
    image, row, column = _places(p, HEIGHT_OUT, WIDTH_OUT, POOL)
    corner = image * stride_b + (row - PADDING) * stride_h + (column - PADDING) * stride_w
    real = (p < n_positions) & (i < SIDE)
    if PADDING > 0:
        row, column = row - PADDING + i, column - PADDING + j
        real = real & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
    return tl.load(x + corner + (i * stride_h + j * stride_w) + channel * stride_i, mask=real, other=0.0)


@triton.jit
def _convolution(
    x, w, y, winner,
    n_positions, stride_c, stride_b, stride_h, stride_w, stride_i,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, HEIGHT_OUT: tl.constexpr, WIDTH_OUT: tl.constexpr,
    IN: tl.constexpr, OUT: tl.constexpr, SIDE: tl.constexpr, PADDING: tl.constexpr, POOL: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    depth: tl.constexpr = SIDE * SIDE * IN
    window: tl.constexpr = POOL * POOL
    x += client * stride_c
    w += client * depth * OUT
    total = tl.zeros((BLOCK_P, BLOCK_O), tl.float32)
    for start in range(0, depth, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        i, j, channel = _taps(start, IN, SIDE, BLOCK_K, 0)
        patch = _patches(
            x, p[:, None], i, j, channel, n_positions, stride_b, stride_h, stride_w, stride_i,
            HEIGHT, WIDTH, HEIGHT_OUT, WIDTH_OUT, SIDE, PADDING, POOL,
        )  # fmt: skip
        kept = (k < depth)[:, None] & (o < OUT)[None, :]
        weight = tl.load(w + k[:, None] + o[None, :] * depth, mask=kept, other=0.0)
        total = tl.dot(patch, weight, total, input_precision="tf32")
    out = client * (n_positions // window) * OUT
    if POOL > 1:
        places = tl.reshape(total, (BLOCK_P // window, window, BLOCK_O))
        total, place = tl.max(places, 1, return_indices=True)
        p = tl.program_id(0) * (BLOCK_P // window) + tl.arange(0, BLOCK_P // window)
        kept = (p < n_positions // window)[:, None] & (o < OUT)[None, :]
        tl.store(winner + out + p[:, None] * OUT + o[None, :], place.to(tl.uint8), mask=kept)
    else:
        kept = (p < n_positions)[:, None] & (o < OUT)[None, :]
    tl.store(y + out + p[:, None] * OUT + o[None, :], total.to(y.dtype.element_ty), mask=kept)


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
    taps: tl.constexpr = 1 if TAPS_FIRST else 0  # axis of the positions in a patch; in g it is the other
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
            HEIGHT, WIDTH, HEIGHT_OUT, WIDTH_OUT, SIDE, PADDING, 1,
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


@triton.jit
def _unpool(
    g, winner, out, n_numbers,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, POOL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    channel = (number % CHANNELS).to(tl.int32)
    image, row, column = _places((number // CHANNELS).to(tl.int32), HEIGHT, WIDTH, 1)
    down, across = HEIGHT // POOL, WIDTH // POOL
    window = (image.to(tl.int64) * down + row // POOL) * across + column // POOL
    inside = (number < n_numbers) & (row < down * POOL) & (column < across * POOL)
    place = tl.load(winner + window * CHANNELS + channel, mask=inside, other=255)
    value = tl.load(g + window * CHANNELS + channel, mask=inside, other=0.0)
    hit = place == (row % POOL * POOL + column % POOL).to(tl.uint8)
    tl.store(out + number, tl.where(hit, value, 0.0), mask=number < n_numbers)
