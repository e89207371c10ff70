"""The batches of one stage for a group of clients, laid out on lanes and sent to the device at once.

Shapes: T steps of the longest lane, U batches of a step, L lanes, B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from idiolect.engines.lanes import Job
from idiolect.federation import BatchPlan

__all__ = ["StagePlan"]


class StagePlan(NamedTuple):
    """Args:
    clients: of the group.
    plans, draws: of every client.
    steps: that every client makes.
    n_batches, n_lanes, n_rows: U, L and B of a step.
    with_keys: the plans hold the examples' keys.
    """

    clients: list[int]
    plans: Sequence[BatchPlan]
    draws: Sequence[dict[str, np.ndarray]]
    steps: list[int]
    n_batches: int
    n_lanes: int
    n_rows: int
    with_keys: bool

    @property
    def ticket_size(self) -> int:
        return self.n_batches * 3 * self.n_lanes * self.n_rows + self.n_lanes

    def tickets(self, jobs: Sequence[Job], device: torch.device) -> Tensor:
        """[T, ticket]: of each step index, mask and key of the rows [U, 3, L, B], then who is active [L]."""
        n_steps = max(job.stop for job in jobs)
        found = np.zeros((n_steps, self.ticket_size), np.int64)
        rows = found[:, : -self.n_lanes].reshape(n_steps, self.n_batches, 3, self.n_lanes, self.n_rows)
        active = found[:, -self.n_lanes :]
        for client, lane, start, stop in jobs:
            count = (stop - start) * self.n_batches
            for place, array in enumerate(self.plans[client]):
                used = array[:count, : self.n_rows]
                rows[start:stop, :, place, lane, : used.shape[1]] = used.reshape(
                    stop - start, self.n_batches, -1
                )
            active[start:stop, lane] = 1
        return _sent(found, device)

    def blank_draws(self, like: Tensor) -> dict[str, Tensor]:
        """Room for the draws of one step [L, draws], by part."""
        return {part: like.new_zeros(self.n_lanes, d.shape[1]) for part, d in self.draws[0].items()}

    def drawn(self, jobs: Sequence[Job], like: Tensor) -> dict[str, Tensor]:
        """By part, the draws of each step [T, L, draws]."""
        n_steps = max(job.stop for job in jobs)
        found = {}
        for part, first in self.draws[0].items():
            array = np.zeros((n_steps, self.n_lanes, first.shape[1]))
            for client, lane, start, stop in jobs:
                array[start:stop, lane] = self.draws[client][part]
            found[part] = _sent(array, like.device).to(like.dtype)
        return found


def _sent(array: np.ndarray, device: torch.device) -> Tensor:
    """On the device, without waiting for what it is doing."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
