"""The batches of a group of clients in one stage, stacked for any block of the group, longest client first.

Shapes: U batches of the longest client, C clients, B rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from idiolect.core import Batch, Program, Stage
from idiolect.engines.workload import Workload

__all__ = ["CohortBatches", "padded_feed", "stack_batches"]


class CohortBatches(NamedTuple):
    """The batches of all clients of a group.

    Args:
        order: place of each client of the columns here in the group as it was given.
        steps: number of steps of each client.
        per_step: batches that one step reads.
        arrays: index, mask and key of the rows, each [U, C, B], zeros where a client has none.
        counts: real rows of each batch [U, C].
        draws: by part, the draws of each step [T, C, draws].
    """

    work: Workload
    order: list[int]
    steps: list[int]
    per_step: int
    arrays: tuple[Tensor, Tensor, Tensor]
    counts: np.ndarray
    draws: dict[str, Tensor]

    def step(self, t: int, clients: slice, width: int | None = None) -> tuple[Batch, ...]:
        """Gathers what some clients read in step ``t``, cut to ``width`` rows or the power of two that holds all."""
        drawn = {part: numbers[t, clients] for part, numbers in self.draws.items()}
        found = []
        for u in range(t * self.per_step, (t + 1) * self.per_step):
            rows = slice(width or 1 << int(self.counts[u, clients].max(initial=1) - 1).bit_length())
            index, mask, key = (array[u, clients, rows] for array in self.arrays)
            found.append(self.work.gather(index, mask, key, drawn))
        return tuple(found)

    def between(
        self, clients: slice, start: int, stop: int, width: int | None = None
    ) -> Iterator[tuple[tuple[Batch, ...], None]]:
        """Yields what some clients read in the steps ``start <= t < stop``."""
        for t in range(start, stop):
            yield self.step(t, clients, width), None


def stack_batches(
    work: Workload,
    program: Program,
    stage: Stage,
    clients: Sequence[int],
    with_keys: bool = True,
    as_given: bool = False,
) -> CohortBatches:
    """Stacks the batches of all clients of a group.

    Args:
        with_keys: whether batches hold the keys of their examples.
        as_given: whether the clients stay in their order.
    """
    planned = [work.plan(program, stage, client, with_keys) for client in clients]
    steps = [len(plan.index) // stage.batches_per_step for plan, _ in planned]
    order = list(range(len(clients)))
    if not as_given:
        order.sort(key=lambda place: -steps[place])
    plans, draws = zip(*(planned[place] for place in order), strict=True)
    arrays = [_side_by_side(each) for each in zip(*plans, strict=True)]
    index, mask, key = (torch.from_numpy(array).to(work.y.device) for array in arrays)
    drawn = {part: _side_by_side([each[part] for each in draws]) for part in draws[0]}
    return CohortBatches(
        work,
        order,
        [steps[place] for place in order],
        stage.batches_per_step,
        (index, mask, key),
        arrays[1].sum(2),
        {part: torch.from_numpy(array).to(work.like) for part, array in drawn.items()},
    )


def padded_feed(
    work: Workload, program: Program, stage: Stage, clients: list[int]
) -> Iterator[tuple[tuple[Batch, ...], Tensor | None]]:
    """Yields the batches of all clients step by step, with the clients that are active [C]; None where all are.

    Clients that are done go on with batches of padding.  A GPU runs a stage so where its step cannot be traced.
    """
    batches = stack_batches(work, program, stage, clients, as_given=True)
    steps = np.array(batches.steps)
    for t in range(steps.max(initial=0)):
        active = None if t < steps.min() else torch.from_numpy(t < steps).to(work.y.device)
        yield batches.step(t, slice(None)), active


def _side_by_side(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Stacks the clients' arrays along a second axis [T, C, ...], with zeros where a client has fewer rows."""
    found = np.zeros((max(map(len, arrays)), len(arrays), *arrays[0].shape[1:]), arrays[0].dtype)
    for c, array in enumerate(arrays):
        found[: len(array), c] = array
    return found
