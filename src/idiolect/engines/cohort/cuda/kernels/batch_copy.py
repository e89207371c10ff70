"""Triton kernel that copies one batch of a step: all that the step reads of it, in one launch."""

# The language of Triton kernels has no types:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from idiolect.engines.cohort.cuda.kernels.dependent_launch import follow, overlap

__all__ = ["copy_batch"]

BLOCK = 1024  # numbers that one grid program copies


def copy_batch(
    examples: tuple[Tensor, Tensor],
    table: Tensor,
    cursor: Tensor,
    ahead: int,
    number: int,
    batch: tuple[Tensor, Tensor, Tensor, Tensor],
    active: Tensor,
) -> None:
    """Fills batch ``number`` of the step at ``cursor + ahead``; with the first batch also the flags of active lanes.

    Args:
        examples: x and y of all examples, from which rows are copied.
        table: a row for each step: index, mask and key of each batch, then the flags of active lanes.
        cursor: the row of the table that the lane group stands at [1].
        batch: x, y, mask and key of the batch [lanes, rows, ...], which are written.
        active: flags of the lanes [lanes], which are written.
    """
    x_pool, y_pool = examples
    x, y, mask, key = batch
    n_lanes, n_rows = y.shape[:2]
    x_size, y_size = x_pool[0].numel(), y_pool[0].numel()
    pieces = triton.cdiv(x_size, BLOCK)
    _copy_batch[(n_lanes * n_rows, pieces + 1)](
        table, cursor, x_pool, y_pool, x, y, mask, key, active.view(torch.uint8),
        ahead, number, table.shape[1], x_size, y_size, pieces, n_lanes, n_rows, BLOCK, num_warps=4,
        **overlap(x.device),
    )  # fmt: skip


@triton.jit(do_not_specialize=["ahead", "number"], do_not_specialize_on_alignment=["cursor"])
def _copy_batch(
    table, cursor, x_pool, y_pool, x, y, mask, key, active, ahead, number, table_width,
    X: tl.constexpr, Y: tl.constexpr, PIECES: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    follow(OVERLAPS)
    row, piece = tl.program_id(0), tl.program_id(1)
    step = table + (tl.load(cursor) + ahead) * table_width
    batch = step + number * 3 * LANES * ROWS
    index = tl.load(batch + row)
    if piece < PIECES:
        n = piece * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + row.to(tl.int64) * X + n, tl.load(x_pool + index * X + n, mask=n < X), mask=n < X)
    else:
        for start in range(0, Y, BLOCK):
            n = start + tl.arange(0, BLOCK)
            tl.store(y + row.to(tl.int64) * Y + n, tl.load(y_pool + index * Y + n, mask=n < Y), mask=n < Y)
        tl.store(mask + row, tl.load(batch + LANES * ROWS + row).to(mask.dtype.element_ty))
        tl.store(key + row, tl.load(batch + 2 * LANES * ROWS + row))
        first = (number == 0) & (row < LANES)
        there = tl.load(step + table_width - LANES + row, mask=first, other=0)
        tl.store(active + row, (there > 0).to(tl.uint8), mask=first)
