"""The batches of one stage for a group of clients, laid out on lanes and sent to the device at once.

Shapes: T steps of the longest lane, U batches of a step, L lanes, B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from idiolect.engines.lanes import Job
from idiolect.engines.workload import sent
from idiolect.federation import BatchPlan

__all__ = ["Shape", "StagePlan", "drawn_on_lanes", "tickets_on_lanes"]


class Shape(NamedTuple):
    """Of one step: U, L and B."""

    n_batches: int
    n_lanes: int
    n_rows: int

    @property
    def ticket(self) -> int:
        """Numbers that say which rows a step reads."""
        return self.n_batches * 3 * self.n_lanes * self.n_rows + self.n_lanes


class StagePlan(NamedTuple):
    """Args:
    clients: of the group.
    jobs: their places on the lanes.
    tickets: [T, ticket] of each step index, mask and key of the rows [U, 3, L, B], then who is active [L].
    draws: by part, the draws of each step [T, L, draws].
    with_keys: the tickets hold the examples' keys.
    """

    clients: list[int]
    jobs: list[Job]
    shape: Shape
    tickets: Tensor
    draws: dict[str, Tensor]
    with_keys: bool

    def blank_draws(self) -> dict[str, Tensor]:
        """Room for the draws of one step, by part."""
        return {
            part: draws.new_zeros(self.shape.n_lanes, draws.shape[2]) for part, draws in self.draws.items()
        }


def tickets_on_lanes(plans: Sequence[BatchPlan], jobs: Sequence[Job], shape: Shape, like: Tensor) -> Tensor:
    n_steps = max((job.stop for job in jobs), default=0)
    found = np.zeros((n_steps, shape.ticket), np.int64)
    rows = found[:, : -shape.n_lanes].reshape(n_steps, shape.n_batches, 3, shape.n_lanes, shape.n_rows)
    active = found[:, -shape.n_lanes :]
    for client, lane, start, stop in jobs:
        steps = stop - start
        for place, array in enumerate(plans[client]):
            used = array[: steps * shape.n_batches, : shape.n_rows]
            rows[start:stop, :, place, lane, : used.shape[1]] = used.reshape(steps, shape.n_batches, -1)
        active[start:stop, lane] = 1
    return sent(found, like.device)


def drawn_on_lanes(
    draws: Sequence[dict[str, np.ndarray]], jobs: Sequence[Job], shape: Shape, like: Tensor
) -> dict[str, Tensor]:
    n_steps = max((job.stop for job in jobs), default=0)
    found = {}
    for part, first in draws[0].items():
        array = np.zeros((n_steps, shape.n_lanes, first.shape[1]))
        for client, lane, start, stop in jobs:
            array[start:stop, lane] = draws[client][part]
        found[part] = sent(array, like.device).to(like.dtype)
    return found
