"""Convolutions of a cohort in Triton: patches are gathered while they are multiplied.

    y[c, b, h, w, :]   = sum_{i, j} x[c, b, h + i - p, w + j - p, :] @ weight[c, i, j]           (``_convolution``)
    gx[c, b, h, w, :]  = sum_{i, j} g[c, b, h - i + p, w - j + p, :] @ weight[c, i, j]^T         (``_gradients``)
    gw[c, i, j]        = sum_{b, h, w} x[c, b, h + i - p, w + j - p, :]^T g[c, b, h, w, :]       (there as well)
    gb[c]              = sum_{b, h, w} g[c, b, h, w, :]                                          (there as well)
    out[n, h, w, :]    = g[n, h / k, w / k, :] where the place within the window is the winner   (``_unpool``)

c counts clients, whose weights may lie apart.  The patches that a matrix product would need side by side are never
written to memory: for a 3x3 kernel that is nine times the image.  With POOL the largest of each window is written
alone.  Sums run in float32, in an order that does not depend on the device's load, so results repeat bit for bit.
"""

from __future__ import annotations

import triton
import triton.language as tl

from idiolect.engines.cohort.cuda.kernels.overlap import follow

__all__ = ["_convolution", "_gradients", "_unpool"]


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
def _weights(
    w,
    start,
    o,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    SIDE: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TURNED: tl.constexpr,
):
    """[BLOCK_K, o] of the weights of taps start, start + 1, ...; TURNED they carry a gradient from IN back to OUT."""
    depth: tl.constexpr = SIDE * SIDE * IN
    k = start + tl.arange(0, BLOCK_K)
    kept = (k < depth)[:, None] & (o < OUT)[None, :]
    if TURNED:  # w is [IN, SIDE, SIDE, OUT]
        place = (k % IN * SIDE * SIDE + (SIDE * SIDE - 1 - k // IN))[:, None] * OUT + o[None, :]
    else:  # w is [OUT, SIDE, SIDE, IN]
        place = k[:, None] + o[None, :] * depth
    return tl.load(w + place, mask=kept, other=0.0)


@triton.jit
def _convolution(
    x, w, y, winner,
    n_positions, weight_stride, stride_c, stride_b, stride_h, stride_w, stride_i,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, HEIGHT_OUT: tl.constexpr, WIDTH_OUT: tl.constexpr,
    IN: tl.constexpr, OUT: tl.constexpr, SIDE: tl.constexpr, PADDING: tl.constexpr, POOL: tl.constexpr,
    TURNED: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_O: tl.constexpr,
    OVERLAPS: tl.constexpr,
):  # fmt: skip
    follow(OVERLAPS)
    client = tl.program_id(2).to(tl.int64)
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    depth: tl.constexpr = SIDE * SIDE * IN
    window: tl.constexpr = POOL * POOL
    x += client * stride_c
    w += client * weight_stride
    total = tl.zeros((BLOCK_P, BLOCK_O), tl.float32)
    for start in range(0, depth, BLOCK_K):
        i, j, channel = _taps(start, IN, SIDE, BLOCK_K, 0)
        patch = _patches(
            x, p[:, None], i, j, channel, n_positions, stride_b, stride_h, stride_w, stride_i,
            HEIGHT, WIDTH, HEIGHT_OUT, WIDTH_OUT, SIDE, PADDING, POOL,
        )  # fmt: skip
        weight = _weights(w, start, o, IN, OUT, SIDE, BLOCK_K, TURNED)
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
def _by_weights(
    x, g, gw, start, block, first, last, n_positions, stride_b, stride_h, stride_w, stride_i,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, HEIGHT_OUT: tl.constexpr, WIDTH_OUT: tl.constexpr,
    IN: tl.constexpr, OUT: tl.constexpr, SIDE: tl.constexpr, PADDING: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_O: tl.constexpr, TAPS_FIRST: tl.constexpr,
):  # fmt: skip
    depth: tl.constexpr = SIDE * SIDE * IN
    k = start + tl.arange(0, BLOCK_K)
    o = block * BLOCK_O + tl.arange(0, BLOCK_O)
    taps: tl.constexpr = 1 if TAPS_FIRST else 0  # axis of the positions in a patch; in g it is the other
    i, j, channel = _taps(start, IN, SIDE, BLOCK_K, taps)
    o_g = tl.expand_dims(o, 1 - taps)
    total = tl.zeros((BLOCK_K, BLOCK_O) if TAPS_FIRST else (BLOCK_O, BLOCK_K), tl.float32)
    for position in range(first, last, BLOCK_P):
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
    tl.store(gw + o[:, None] * depth + k[None, :], total, mask=(o < OUT)[:, None] & (k < depth)[None, :])


@triton.jit
def _by_bias(g, gb, block, first, last, OUT: tl.constexpr, BLOCK_O: tl.constexpr, ROWS: tl.constexpr):
    o = block * BLOCK_O + tl.arange(0, BLOCK_O)
    total = tl.zeros((ROWS, BLOCK_O), tl.float32)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        kept = (row < last)[:, None] & (o < OUT)[None, :]
        total += tl.load(g + row[:, None] * OUT + o[None, :], mask=kept, other=0.0)
    tl.store(gb + o, tl.sum(total, 0), mask=o < OUT)


@triton.jit
def _by_x(
    w, g, gx, tile, block, n_pixels,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, HEIGHT_OUT: tl.constexpr, WIDTH_OUT: tl.constexpr,
    IN: tl.constexpr, OUT: tl.constexpr, SIDE: tl.constexpr, PADDING: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    depth: tl.constexpr = SIDE * SIDE * OUT
    p = tile * BLOCK_P + tl.arange(0, BLOCK_P)
    into = block * BLOCK_I + tl.arange(0, BLOCK_I)
    total = tl.zeros((BLOCK_P, BLOCK_I), tl.float32)
    for start in range(0, depth, BLOCK_K):
        i, j, channel = _taps(start, OUT, SIDE, BLOCK_K, 0)
        patch = _patches(
            g, p[:, None], i, j, channel, n_pixels, HEIGHT_OUT * WIDTH_OUT * OUT, WIDTH_OUT * OUT, OUT, 1,
            HEIGHT_OUT, WIDTH_OUT, HEIGHT, WIDTH, SIDE, SIDE - 1 - PADDING, 1,
        )  # fmt: skip
        weight = _weights(w, start, into, OUT, IN, SIDE, BLOCK_K, True)
        total = tl.dot(patch, weight, total, input_precision="tf32")
    kept = (p < n_pixels)[:, None] & (into < IN)[None, :]
    tl.store(gx + p[:, None] * IN + into[None, :], total.to(gx.dtype.element_ty), mask=kept)


@triton.jit
def _gradients(
    x, w, g, gx, gw, gb,
    n_positions, n_pixels, per_part, n_parts, weight_stride, stride_c, stride_b, stride_h, stride_w, stride_i,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, HEIGHT_OUT: tl.constexpr, WIDTH_OUT: tl.constexpr,
    IN: tl.constexpr, OUT: tl.constexpr, SIDE: tl.constexpr, PADDING: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_O: tl.constexpr, TAPS_FIRST: tl.constexpr,
    PIXELS: tl.constexpr, PIXELS_K: tl.constexpr, PIXELS_I: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """One launch: programs by weights for each part of the positions, then those by bias, then those by x."""
    follow(OVERLAPS)
    client, number = tl.program_id(1).to(tl.int64), tl.program_id(0)
    depth: tl.constexpr = SIDE * SIDE * IN
    blocks: tl.constexpr = (OUT + BLOCK_O - 1) // BLOCK_O
    tiles: tl.constexpr = (depth + BLOCK_K - 1) // BLOCK_K * blocks
    across: tl.constexpr = (IN + PIXELS_I - 1) // PIXELS_I
    after_weights = number - tiles * n_parts
    after_bias = after_weights - blocks * n_parts
    g += client * n_positions * OUT
    if after_weights < 0:
        part, tile = number // tiles, number % tiles
        first = part * per_part
        _by_weights(
            x + client * stride_c, g, gw + (part * tl.num_programs(1) + client) * depth * OUT,
            tile // blocks * BLOCK_K, tile % blocks, first, min(first + per_part, n_positions), n_positions,
            stride_b, stride_h, stride_w, stride_i, HEIGHT, WIDTH, HEIGHT_OUT, WIDTH_OUT,
            IN, OUT, SIDE, PADDING, BLOCK_P, BLOCK_K, BLOCK_O, TAPS_FIRST,
        )  # fmt: skip
    elif after_bias < 0:
        part = after_weights // blocks
        first = part * per_part
        _by_bias(
            g, gb + (part * tl.num_programs(1) + client) * OUT, after_weights % blocks,
            first, min(first + per_part, n_positions), OUT, BLOCK_O, 4096 // BLOCK_O,
        )  # fmt: skip
    else:
        _by_x(
            w + client * weight_stride, g, gx + client * n_pixels * IN,
            after_bias // across, after_bias % across, n_pixels,
            HEIGHT, WIDTH, HEIGHT_OUT, WIDTH_OUT, IN, OUT, SIDE, PADDING, PIXELS, PIXELS_K, PIXELS_I,
        )  # fmt: skip


@triton.jit
def _unpool(
    g, winner, out, n_numbers,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, POOL: tl.constexpr, BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):  # fmt: skip
    follow(OVERLAPS)
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
