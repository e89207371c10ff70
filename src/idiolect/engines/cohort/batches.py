"""The batches of a group of clients in one stage, longest client first, stacked for any block of the group.

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

__all__ = ["CohortBatches", "lay_out", "padded_feed"]


class CohortBatches(NamedTuple):
    """Args:
    order: positions in the group as it was given, in the order of the rows here.
    steps: of each client.
    per_step: batches that one step reads.
    arrays: index, mask and key of the rows, each [U, C, B], zeros where a client has none.
    counts: [U, C] real rows.
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
        """What some clients read in step ``t``, cut to ``width`` rows, or to a power of two that holds all."""
        drawn = {part: numbers[t, clients] for part, numbers in self.draws.items()}
        found = []
        for u in range(t * self.per_step, (t + 1) * self.per_step):
            rows = slice(width or 1 << int(self.counts[u, clients].max(initial=1) - 1).bit_length())
            found.append(self.work.gather(*(array[u, clients, rows] for array in self.arrays), drawn))
        return tuple(found)

    def between(
        self, clients: slice, start: int, stop: int, width: int | None = None
    ) -> Iterator[tuple[tuple[Batch, ...], None]]:
        for t in range(start, stop):
            yield self.step(t, clients, width), None


def lay_out(
    work: Workload,
    program: Program,
    stage: Stage,
    clients: Sequence[int],
    with_keys: bool = True,
    as_given: bool = False,
) -> CohortBatches:
    """Args:
    with_keys: the batches hold the keys of their examples.
    as_given: the clients stay in their order.
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
    """All clients' batches step by step, as given, with who is active [C], if not all.

    Whoever is done goes on with batches of padding: on a GPU, where a stage can only be vmapped.
    """
    batches = lay_out(work, program, stage, clients, as_given=True)
    steps = np.array(batches.steps)
    for t in range(steps.max(initial=0)):
        active = None if t < steps.min() else torch.from_numpy(t < steps).to(work.y.device)
        yield batches.step(t, slice(None)), active


def _side_by_side(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Everybody's rows t next to each other [T, C, ...], zeros for those who have none."""
    found = np.zeros((max(map(len, arrays)), len(arrays), *arrays[0].shape[1:]), arrays[0].dtype)
    for c, array in enumerate(arrays):
        found[: len(array), c] = array
    return found
