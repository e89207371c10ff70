"""The Triton kernels on tensors: shapes and grids."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from idiolect.engines.cohort.cuda.kernels.convolution import _convolution, _gradients, _unpool
from idiolect.engines.cohort.cuda.kernels.overlap import overlap
from idiolect.engines.cohort.cuda.kernels.tiles import (
    MULTIPROCESSORS,
    Tile,
    backward_tile,
    carrying_tile,
    forward_tile,
    too_long,
)

__all__ = ["convolution", "gradients", "unpool"]

# Programs that fill the device, from which gradients by x are a kernel of their own.
BUSY = 4 * MULTIPROCESSORS
NO_PIXELS = Tile(16, 16, 16, warps=1)


def convolution(
    x: Tensor,
    w: Tensor,
    side: int,
    padding: int,
    pool: int = 1,
    turned: bool = False,
) -> tuple[Tensor, Tensor]:
    """x [C, B, H, W, I] of any strides, w [C, O, side side I], each client's contiguous -> [C, B, H', W', O].

    Args:
        turned: w is [C, I, side side O], and carries a gradient of what it gave back.
        pool: side of the windows of which only the largest value is written, a power of two; 1 writes all.

    Returns:
        The values, and for each which place of its window it came from; nothing where there are no windows.
    """
    n_clients, n_rows, height, width, n_in = x.shape
    n_out = w.shape[2] // side**2 if turned else w.shape[1]
    height_out, width_out = height + 2 * padding - side + 1, width + 2 * padding - side + 1
    y = x.new_empty(n_clients, n_rows, height_out // pool, width_out // pool, n_out)
    winner = torch.empty(y.shape if pool > 1 else 0, dtype=torch.uint8, device=x.device)
    n_positions = y[0, ..., 0].numel() * pool * pool
    if n_rows > 1 and too_long(x[0].numel(), n_positions * n_out):
        halves = [convolution(half, w, side, padding, pool, turned) for half in x.tensor_split(2, 1)]
        return torch.cat([y for y, _ in halves], 1), torch.cat(
            [winner for _, winner in halves], int(pool > 1)
        )
    tile_of = carrying_tile if turned else forward_tile
    tile = tile_of(x.dtype, n_out, side * side * n_in, n_clients * n_positions)
    grid = (triton.cdiv(n_positions, tile.positions), triton.cdiv(n_out, tile.out), n_clients)
    _convolution[grid](
        x, w, y, winner, n_positions, w.stride(0), *x.stride(),
        height, width, height_out, width_out, n_in, n_out, side, padding, pool, turned,
        tile.positions, tile.depth, tile.out, num_warps=tile.warps, num_stages=tile.stages,
        **overlap(x.device),
    )  # fmt: skip
    return y, winner


def gradients(
    x: Tensor, w: Tensor | None, g: Tensor, side: int, padding: int, tile: Tile | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Of the convolution of x [C, B, H, W, I], of any strides, whose result has the gradient g [C, B, H', W', O].

    Args:
        w: [C, O, side side I], each client's contiguous; None where the gradient by x is not asked for.

    Returns:
        By x [C, B, H, W, I] or nothing, by weights [P, C, O, side side I], by bias [P, C, O].
    """
    n_clients, n_rows, height, width, n_in = x.shape
    _, _, height_out, width_out, n_out = g.shape
    n_positions, n_pixels = n_rows * height_out * width_out, n_rows * height * width
    depth = side * side * n_in
    if n_rows > 1 and too_long(x[0].numel(), g[0].numel()):
        pairs = zip(x.tensor_split(2, 1), g.tensor_split(2, 1), strict=True)
        halves = [gradients(a, w, b.contiguous(), side, padding, tile) for a, b in pairs]
        by_x, by_weights, by_bias = (list(found) for found in zip(*halves, strict=True))
        return torch.cat(by_x, 0 if w is None else 1), torch.cat(by_weights), torch.cat(by_bias)
    tile = tile or backward_tile(x.dtype, depth, n_out, n_clients, n_positions)
    n_parts = triton.cdiv(n_positions, tile.part)
    programs = (triton.cdiv(depth, tile.depth) + 1) * triton.cdiv(n_out, tile.out) * n_parts
    pixels = NO_PIXELS
    if w is not None:
        if n_clients * programs > BUSY:
            by_x, _ = convolution(g, w, side, side - 1 - padding, turned=True)
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
    """[N, h, w, C] contiguous, and which place of its window each value goes to -> [N, H, W, C]."""
    out = g.new_empty(g.shape[0], height, width, g.shape[3])
    block = 1024
    _unpool[(triton.cdiv(out.numel(), block),)](
        g, winner, out, out.numel(), height, width, g.shape[3], side, block, num_warps=4, **overlap(g.device)
    )
    return out
