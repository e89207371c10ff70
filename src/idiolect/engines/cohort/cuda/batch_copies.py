"""Batch copies: the batches of a lane group's steps, copied one after the other to where its step reads them.

A lane group stands at a row of the batch table, which names the examples that a step reads.  Table and position stay on
the device, so that several steps can follow each other without the host.
"""

from __future__ import annotations

from subprocess import CalledProcessError

import torch
from torch import Tensor

from idiolect.core.trees import tree_leaves
from idiolect.engines.cohort.cuda.kernels import HAS_TRITON
from idiolect.engines.cohort.cuda.lane_memory import copy_all
from idiolect.engines.cohort.cuda.stage_plan import StagePlan, StepShape
from idiolect.engines.workload import Workload

__all__ = ["BatchCopier", "BatchTable"]


class BatchTable:
    """Memory on the device for what all steps of a stage read: a row for each step, and its draws.

    Args:
        least: steps that there is room for at least.
    """

    def __init__(self, plan: StagePlan, least: int) -> None:
        size = max(least, plan.room, len(plan.table))
        self.rows = plan.table.new_zeros(size, plan.shape.table_width)
        self.draws = {part: draws.new_zeros(size, *draws.shape[1:]) for part, draws in plan.draws.items()}

    def has_room(self, plan: StagePlan) -> bool:
        return len(plan.table) <= len(self.rows)

    def load(self, plan: StagePlan) -> None:
        """Copies the table and the draws of a plan."""
        n_steps = len(plan.table)
        copy_all(
            [self.rows[:n_steps], *(draws[:n_steps] for draws in self.draws.values())],
            [plan.table, *(plan.draws[part] for part in self.draws)],
        )


class BatchCopier:
    """Copies the batches of the steps of one lane group.

    Args:
        cursor: where the lane group stands among the steps [1].

    Attributes:
        leaves: of the batches of one step.
        active: which lanes have a client there.
    """

    def __init__(self, work: Workload, shape: StepShape, table: BatchTable, cursor: Tensor) -> None:
        self._work, self._shape, self._table, self.cursor = work, shape, table, cursor
        n_batches, n_lanes, n_rows = shape
        self._draws = {part: draws.new_zeros(draws.shape[1:]) for part, draws in table.draws.items()}
        blank = torch.zeros(3, n_lanes, n_rows, dtype=torch.int64, device=work.y.device)
        self._batches = []
        for _ in range(n_batches):
            index, mask, key = blank.clone().unbind()
            self._batches.append(work.gather(index, mask, key, self._draws))
        self.leaves = tree_leaves(self._batches)
        self.active = torch.zeros(n_lanes, dtype=torch.bool, device=work.y.device)
        self._by_kernel = work.y.is_cuda and HAS_TRITON and self._has_kernel()

    def copy(self, ahead: int) -> None:
        """Copies the batches of the step that is so many steps ahead of the cursor."""
        if self._draws:
            place = self.cursor + ahead
            drawn = [draws.index_select(0, place)[0] for draws in self._table.draws.values()]
            copy_all(list(self._draws.values()), drawn)
        (self._copy_by_kernel if self._by_kernel else self._copy_plainly)(ahead)

    def _has_kernel(self) -> bool:
        """Whether Triton has a C compiler that works; without one inductor's kernels fail too, with a warning."""
        try:
            self._copy_by_kernel(0)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, CalledProcessError):
            return False
        return True

    def _copy_by_kernel(self, ahead: int) -> None:
        from idiolect.engines.cohort.cuda.kernels.batch_copy import copy_batch  # noqa: PLC0415

        examples, rows = (self._work.x, self._work.y), self._table.rows
        for number, (x, y, mask, key, _) in enumerate(self._batches):
            copy_batch(examples, rows, self.cursor, ahead, number, (x, y, mask, key), self.active)

    def _copy_plainly(self, ahead: int) -> None:
        """Copies in PyTorch what the kernel copies; it defines what the kernel has to do."""
        n_batches, n_lanes, n_rows = self._shape
        row = self._table.rows.index_select(0, self.cursor + ahead)[0]
        batches = row[:-n_lanes].view(n_batches, 3, n_lanes, n_rows)
        for batch, (index, mask, key) in zip(self._batches, batches, strict=True):
            found = self._work.gather(index, mask, key, batch.draws)
            copy_all(list(batch[:4]), list(found[:4]))
        self.active.copy_(row[-n_lanes:] > 0)
