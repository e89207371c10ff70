"""The batches of a program's steps, put one after the other where its step reads them.

A program stands at a place among the tickets of all programs; a deal copies the rows that the ticket there names.
Both stay on the device, so that several steps can follow each other without the host.
"""

from __future__ import annotations

from subprocess import CalledProcessError

import torch
from torch import Tensor

from idiolect.core.trees import tree_leaves
from idiolect.engines.cohort.cuda.lane_memory import copy_all
from idiolect.engines.cohort.cuda.stage_plan import Shape, StagePlan
from idiolect.engines.cohort.operations import HAS_TRITON
from idiolect.engines.workload import Workload

__all__ = ["Dealer", "Deck"]


class Deck:
    """Room for the tickets and draws of all steps.

    Args:
        least: steps that there is room for at least.
    """

    def __init__(self, plan: StagePlan, least: int) -> None:
        size = max(least, plan.room, len(plan.tickets))
        self.tickets = plan.tickets.new_zeros(size, plan.shape.ticket)
        self.draws = {part: draws.new_zeros(size, *draws.shape[1:]) for part, draws in plan.draws.items()}

    def holds(self, plan: StagePlan) -> bool:
        return len(plan.tickets) <= len(self.tickets)

    def lay(self, plan: StagePlan) -> None:
        n_steps = len(plan.tickets)
        copy_all(
            [self.tickets[:n_steps], *(draws[:n_steps] for draws in self.draws.values())],
            [plan.tickets, *(plan.draws[part] for part in self.draws)],
        )


class Dealer:
    """Args:
    cursor: where the program stands among the steps [1].

    Attributes:
        leaves: of the batches of one step.
        active: which lanes have a client there.
    """

    def __init__(self, work: Workload, shape: Shape, deck: Deck, cursor: Tensor) -> None:
        self._work, self._shape, self._deck, self.cursor = work, shape, deck, cursor
        n_batches, n_lanes, n_rows = shape
        self._draws = {part: draws.new_zeros(draws.shape[1:]) for part, draws in deck.draws.items()}
        blank = torch.zeros(3, n_lanes, n_rows, dtype=torch.int64, device=work.y.device)
        self._batches = [work.gather(*blank.clone(), self._draws) for _ in range(n_batches)]
        self.leaves = tree_leaves(self._batches)
        self.active = torch.zeros(n_lanes, dtype=torch.bool, device=work.y.device)
        self._by_kernel = work.y.is_cuda and HAS_TRITON and self._has_kernel()

    def deal(self, ahead: int) -> None:
        """The batches of the step so many steps ahead of the cursor."""
        if self._draws:
            place = self.cursor + ahead
            drawn = [draws.index_select(0, place)[0] for draws in self._deck.draws.values()]
            copy_all(list(self._draws.values()), drawn)
        (self._deal_by_kernel if self._by_kernel else self._deal_plainly)(ahead)

    def _has_kernel(self) -> bool:
        """Whether Triton has a C compiler that works; without one inductor's kernels fail too, and that is said."""
        try:
            self._deal_by_kernel(0)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, CalledProcessError):
            return False
        return True

    def _deal_by_kernel(self, ahead: int) -> None:
        from idiolect.engines.cohort.cuda.kernels.batch_copy import copy_batch  # noqa: PLC0415

        examples, tickets = (self._work.x, self._work.y), self._deck.tickets
        for number, (x, y, mask, key, _) in enumerate(self._batches):
            copy_batch(examples, tickets, self.cursor, ahead, number, (x, y, mask, key), self.active)

    def _deal_plainly(self, ahead: int) -> None:
        """The meaning of the kernel."""
        n_batches, n_lanes, n_rows = self._shape
        ticket = self._deck.tickets.index_select(0, self.cursor + ahead)[0]
        rows = ticket[:-n_lanes].view(n_batches, 3, n_lanes, n_rows)
        for batch, picked in zip(self._batches, rows, strict=True):
            found = self._work.gather(*picked, batch.draws)
            copy_all(list(batch[:4]), list(found[:4]))
        self.active.copy_(ticket[-n_lanes:] > 0)
