"""Triton kernels of a cohort's convolutions, their gradients and unpooling, and how they are launched.

    y[c, b, h, w, :]   = sum_{i, j} x[c, b, h + i - p, w + j - p, :] @ weight[c, i, j]           (``_convolution``)
    gx[c, b, h, w, :]  = sum_{i, j} g[c, b, h - i + p, w - j + p, :] @ weight[c, i, j]^T         (``_gradients``)
    gw[c, i, j]        = sum_{b, h, w} x[c, b, h + i - p, w + j - p, :]^T g[c, b, h, w, :]       (there as well)
    gb[c]              = sum_{b, h, w} g[c, b, h, w, :]                                          (there as well)
    out[n, h, w, :]    = g[n, h / k, w / k, :] where the place within the window is the winner   (``_unpool``)

c counts clients, whose weights may lie apart.  Patches are gathered while they are multiplied and never written to
memory: for a 3x3 kernel that is nine times the image.  With POOL only the largest value of each window is written.
Sums run in float32, in an order that does not depend on the device's load, so that results repeat bit for bit.
"""

# The language of Triton kernels has no types:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from idiolect.engines.cohort.cuda.kernels.dependent_launch import follow, overlap
from idiolect.engines.cohort.cuda.kernels.tiles import (
    MULTIPROCESSORS,
    Tile,
    backward_tile,
    carrying_tile,
    forward_tile,
    too_long,
)

__all__ = ["convolution", "gradients", "unpool"]

# Grid programs that fill the device, from which gradients by x are a kernel of their own.
BUSY = 4 * MULTIPROCESSORS
NO_PIXELS = Tile(16, 16, 16, warps=1)


def convolution(
    x: Tensor,
    w: Tensor,
    side: int,
    padding: int,
    pool: int = 1,
    backward: bool = False,
) -> tuple[Tensor, Tensor]:
    """Convolves x [C, B, H, W, I], of any strides, with w [C, O, side side I], contiguous for each client.

    Args:
        backward: w is [C, I, side side O], and carries a gradient by its result x back to its input.
        pool: side of the windows of which only the largest value is written, a power of two; 1 writes all.

    Returns:
        The values [C, B, H', W', O], and which place of its window each came from; nothing where there are no windows.
    """
    n_clients, n_rows, height, width, n_in = x.shape
    n_out = w.shape[2] // side**2 if backward else w.shape[1]
    height_out, width_out = height + 2 * padding - side + 1, width + 2 * padding - side + 1
    y = x.new_empty(n_clients, n_rows, height_out // pool, width_out // pool, n_out)
    winner = torch.empty(y.shape if pool > 1 else 0, dtype=torch.uint8, device=x.device)
    n_positions = y[0, ..., 0].numel() * pool * pool
    if n_rows > 1 and too_long(x[0].numel(), n_positions * n_out):
        halves = [convolution(half, w, side, padding, pool, backward) for half in x.tensor_split(2, 1)]
        return torch.cat([y for y, _ in halves], 1), torch.cat(
            [winner for _, winner in halves], int(pool > 1)
        )
    tile_of = carrying_tile if backward else forward_tile
    tile = tile_of(x.dtype, n_out, side * side * n_in, n_clients * n_positions)
    grid = (triton.cdiv(n_positions, tile.positions), triton.cdiv(n_out, tile.out), n_clients)
    _convolution[grid](
        x, w, y, winner, n_positions, w.stride(0), *x.stride(),
        height, width, height_out, width_out, n_in, n_out, side, padding, pool, backward,
        tile.positions, tile.depth, tile.out, num_warps=tile.warps, num_stages=tile.stages,
        **overlap(x.device),
    )  # fmt: skip
    return y, winner


def gradients(
    x: Tensor, w: Tensor | None, g: Tensor, side: int, padding: int, tile: Tile | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Differentiates the convolution of x [C, B, H, W, I], of any strides, whose result has the gradient g.

    Args:
        g: [C, B, H', W', O].
        w: [C, O, side side I], contiguous for each client; None where the gradient by x is not asked for.

    Returns:
        Gradients by x [C, B, H, W, I] or nothing, by weights [P, C, O, side side I] and by bias [P, C, O], of which P
        parts have to be added up.
    """
    n_clients, n_rows, height, width, n_in = x.shape
    _, _, height_out, width_out, n_out = g.shape
    n_positions, n_pixels = n_rows * height_out * width_out, n_rows * height * width
    depth = side * side * n_in
    if n_rows > 1 and too_long(x[0].numel(), g[0].numel()):
        pairs = zip(x.tensor_split(2, 1), g.tensor_split(2, 1), strict=True)
        halves = [gradients(a, w, b.contiguous(), side, padding, tile) for a, b in pairs]
        parts = [list(found) for found in zip(*halves, strict=True)]
        return torch.cat(parts[0], 0 if w is None else 1), torch.cat(parts[1]), torch.cat(parts[2])
    tile = tile or backward_tile(x.dtype, depth, n_out, n_clients, n_positions)
    n_parts = triton.cdiv(n_positions, tile.part)
    programs = (triton.cdiv(depth, tile.depth) + 1) * triton.cdiv(n_out, tile.out) * n_parts
    pixels = NO_PIXELS
    if w is not None:
        if n_clients * programs > BUSY:
            by_x, _ = convolution(g, w, side, side - 1 - padding, backward=True)
            return by_x, *gradients(x, None, g, side, padding, tile)[1:]
        pixels = carrying_tile(x.dtype, n_in, side * side * n_out, n_clients * n_pixels)
        programs += triton.cdiv(n_pixels, pixels.positions) * triton.cdiv(n_in, pixels.out)
    by_x = x.new_empty(0 if w is None else x.shape)
    by_weights = torch.empty(n_parts, n_clients, n_out, depth, dtype=torch.float32, device=x.device)
    by_bias = torch.empty(n_parts, n_clients, n_out, dtype=torch.float32, device=x.device)
    _gradients[(programs, n_clients)](
        x, by_x if w is None else w, g, by_x, by_weights, by_bias,
        n_positions, n_pixels, tile.part, n_parts, 0 if w is None else w.stride(0), *x.stride(),
        height, width, height_out, width_out, n_in, n_out, side, padding,
        tile.positions, tile.depth, tile.out, tile.taps_first, pixels.positions, pixels.depth, pixels.out,
        num_warps=max(tile.warps, pixels.warps), num_stages=tile.stages, **overlap(x.device),
    )  # fmt: skip
    return by_x, by_weights, by_bias


def unpool(g: Tensor, winner: Tensor, side: int, height: int, width: int) -> Tensor:
    """Spreads g [N, h, w, C], contiguous, over [N, H, W, C]: each value goes to the place of its window that won."""
    out = g.new_empty(g.shape[0], height, width, g.shape[3])
    block = 1024
    _unpool[(triton.cdiv(out.numel(), block),)](
        g, winner, out, out.numel(), height, width, g.shape[3], side, block, num_warps=4, **overlap(g.device)
    )
    return out


@triton.jit
def _taps(start, IN: tl.constexpr, SIDE: tl.constexpr, BLOCK_K: tl.constexpr, AXIS: tl.constexpr):
    """Returns row, column and channel of the taps from start on of a patch, along the other axis than ``AXIS``."""
    if IN % BLOCK_K == 0:  # they are channels of one tap
        tap, channel = start // IN, tl.multiple_of(start % IN, BLOCK_K) + tl.arange(0, BLOCK_K)
    else:
        k = start + tl.arange(0, BLOCK_K)
        tap, channel = tl.expand_dims(k // IN, AXIS), k % IN
    return tap // SIDE, tap % SIDE, tl.expand_dims(channel, AXIS)


@triton.jit
def _places(p, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, POOL: tl.constexpr):
    """Returns image, row and column of positions in maps of HEIGHT x WIDTH; with POOL, window by window."""
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
    """Loads what the patches at positions p hold at the taps (i, j, channel), which lie along the other axis."""
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
    BACKWARD: tl.constexpr,
):
    """Loads the weights [BLOCK_K, o] of taps from start on; BACKWARD they carry a gradient from IN back to OUT."""
    depth: tl.constexpr = SIDE * SIDE * IN
    k = start + tl.arange(0, BLOCK_K)
    kept = (k < depth)[:, None] & (o < OUT)[None, :]
    if BACKWARD:  # w is [IN, SIDE, SIDE, OUT]
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
    BACKWARD: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_O: tl.constexpr,
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
        weight = _weights(w, start, o, IN, OUT, SIDE, BLOCK_K, BACKWARD)
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
    """One launch: grid programs by weights for each part of the positions, then those by bias, then those by x."""
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
