"""Dealing in Triton: one kernel copies all that a step reads of one batch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from idiolect.core import Batch
from idiolect.engines.workload import Workload
from idiolect.layers.overlap import follow, overlap

__all__ = ["deal"]

BLOCK = 1024  # numbers that one program copies


def deal(
    work: Workload, tickets: Tensor, cursor: Tensor, ahead: int, number: int, batch: Batch, active: Tensor
) -> None:
    """Fills batch ``number`` of the step at ``cursor + ahead``, and with the first who is active."""
    n_lanes, n_rows = batch.y.shape[:2]
    x_size, y_size = work.x[0].numel(), work.y[0].numel()
    pieces = triton.cdiv(x_size, BLOCK)
    _deal[(n_lanes * n_rows, pieces + 1)](
        tickets, cursor, work.x, work.y, batch.x, batch.y, batch.mask, batch.key, active.view(torch.uint8),
        ahead, number, tickets.shape[1], x_size, y_size, pieces, n_lanes, n_rows, BLOCK, num_warps=4,
        **overlap(batch.x.device),
    )  # fmt: skip


@triton.jit(do_not_specialize=["ahead", "number"], do_not_specialize_on_alignment=["cursor"])
def _deal(
    tickets, cursor, x_pool, y_pool, x, y, mask, key, active, ahead, number, ticket_size,
    X: tl.constexpr, Y: tl.constexpr, PIECES: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    follow(OVERLAPS)
    row, piece = tl.program_id(0), tl.program_id(1)
    ticket = tickets + (tl.load(cursor) + ahead) * ticket_size
    batch = ticket + number * 3 * LANES * ROWS
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
        there = tl.load(ticket + ticket_size - LANES + row, mask=first, other=0)
        tl.store(active + row, (there > 0).to(tl.uint8), mask=first)
