"""Floating-point operations of a client's stages, counted on one step of each.

A step is run on the meta device, without numbers, and ``torch.utils.flop_counter`` counts the operations of its matrix
products and convolutions, two for a multiplication with its addition; elementwise operations are not counted.  What is
counted is the method's own program, so that companions, teachers and gradients of gradients count as what they are.

Products and convolutions of a step on n rows take ``a + b n + c n^2`` operations: a for what sees parameters alone, b
for the network, c for what compares the rows of a batch with one another.  Three counts determine all three.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from idiolect.core import Context, Initial, Program, Stage, State
from idiolect.engines.client_packing import SINGLE, Feed, advance
from idiolect.engines.dry_round import dry_client
from idiolect.engines.stages import run_round, run_settling

__all__ = ["StageFlops", "count_stages"]

ROWS = (2, 3, 4)  # of the batches that are counted; one row is too few for batch normalisation
StageKey = tuple[str, str]  # phase (round, merged or end) and name of the stage


class StageFlops(NamedTuple):
    """Operations of one step, as a polynomial in the rows of each of its batches."""

    constant: int
    linear: int
    square: int

    def of(self, rows: int) -> int:
        """Returns the operations of a step whose batches have this many rows.

        >>> StageFlops(1, 10, 2).of(3)
        49
        """
        return self.constant + rows * (self.linear + rows * self.square)


def count_stages(
    program: Program, initial: Initial, x: Tensor, n_classes: int, with_numbers: bool = False
) -> dict[StageKey, StageFlops]:
    """Counts one step of every stage that a client has in a round, after the merge and at the end of the run.

    Args:
        x: rows of the dtype and shape that the run will use.
        with_numbers: computes on the CPU, as a network must whose forward pass may depend on values, and as is quicker
            for a small one.
    """
    device = "cpu" if with_numbers else "meta"
    counts = [_count(program, initial, x, n_classes, rows, device) for rows in ROWS[:2]]
    if any(ROWS[1] * count != ROWS[0] * counts[1][key] for key, count in counts[0].items()):
        counts.append(_count(program, initial, x, n_classes, ROWS[2], device))
    return {key: _fitted([count[key] for count in counts]) for key in counts[0]}


def _fitted(counts: list[int]) -> StageFlops:
    """Returns the polynomial through the counts; two are given where they are in the proportion of their rows.

    >>> tuple(_fitted([20, 30])), tuple(_fitted([21, 31, 41])), tuple(_fitted([4, 9, 16]))
    ((0, 10, 0), (1, 10, 0), (0, 0, 1))
    """
    if len(counts) == 2:
        return StageFlops(0, counts[0] // ROWS[0], 0)
    first, second, third = counts  # at 2, 3 and 4 rows
    square = (third - 2 * second + first) // 2
    linear = second - first - 5 * square
    return StageFlops(first - 2 * linear - 4 * square, linear, square)


def _count(
    program: Program, initial: Initial, x: Tensor, n_classes: int, rows: int, device: str
) -> dict[StageKey, int]:
    """Returns the operations of one step of every stage, on batches of ``rows`` rows."""
    found: dict[StageKey, int] = {}
    phase = "round"

    def fold(program: Program, stage: Stage, context: Context, state: State, feed: Feed) -> State:
        step = advance(program, stage)
        for batches, _ in feed:
            with FlopCounterMode(display=False) as counter:
                state = step(context, state, batches)
            found[phase, stage.name] = counter.get_total_flops()
        return state

    client = dry_client(program, initial, x, n_classes, rows=rows, device=device)
    packing = SINGLE._replace(fold=fold)
    context, _ = run_round(program, packing, client.context, client.feed)
    for phase in ("merged", "end"):
        private = run_settling(program, packing, phase, context._replace(results={}), client.feed)
        context = context._replace(private=private, results={})
    return found
