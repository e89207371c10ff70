"""The plans of stages on lanes: made when they are asked for, or ahead of time while the device is busy."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from idiolect.core import Program, Stage
from idiolect.engines.lanes import Layout, lay_out
from idiolect.engines.stage_plan import Shape, StagePlan, lay_out_batches
from idiolect.engines.workload import Workload

__all__ = ["Planner"]

KEPT = 8  # plans of measuring that are kept
HELD = 64 << 20  # bytes of plans of coming rounds, from which no more are made

_Key = tuple[int, str, tuple[int, ...]]  # round, stage, clients


@dataclass
class Planner:
    """Args:
    reads_keys: by stage, whether its step depends on the keys of examples; a stage not in it may.
    """

    work: Workload
    reads_keys: dict[str, bool] = field(default_factory=dict)
    _ahead: dict[_Key, StagePlan] = field(default_factory=dict)
    _measured: dict[Hashable, StagePlan] = field(default_factory=dict)
    _extents: dict[Hashable, tuple[Layout, int, int]] = field(default_factory=dict)

    def look_ahead(self, program: Program, clients: list[int]) -> None:
        """Makes the plans of a coming round, where they are not made and others do not hold much memory."""
        plan = program.method.plan(program.scene, program.clock)
        for stage in (*plan.before, *plan.after):
            key = _key(program, stage, clients)
            held = sum(plan.tickets.nbytes for plan in self._ahead.values())
            if key not in self._ahead and held < HELD:
                self._ahead[key] = self.make(program, stage, clients)

    def forget(self) -> None:
        self._ahead.clear()
        self._measured.clear()

    def plan(self, work: Workload, program: Program, stage: Stage, clients: list[int]) -> StagePlan:
        ahead = self._ahead.pop(_key(program, stage, clients), None)
        for key in [key for key in self._ahead if key[0] < program.clock.round]:
            del self._ahead[key]
        return ahead or self.make(program, stage, clients)

    def make(self, program: Program, stage: Stage, clients: list[int]) -> StagePlan:
        if stage.measure is None:
            return self._laid_out(program, stage, clients, self.reads_keys.get(stage.name, True))
        # Rows are measured in their own order, which is the same in every round.
        key = (stage.split, stage.batches_per_step, tuple(clients), program.scene)
        if key not in self._measured:
            if len(self._measured) == KEPT:
                self._measured.pop(next(iter(self._measured)))
            self._measured[key] = self._laid_out(program, stage, clients, with_keys=True)
        return self._measured[key]

    def _laid_out(self, program: Program, stage: Stage, clients: list[int], with_keys: bool) -> StagePlan:
        planned = [self.work.plan(program, stage, client, with_keys) for client in clients]
        plans, draws = zip(*planned, strict=True)
        layout, n_rows, room = self._extent(program, stage, len(clients))
        shape = Shape(stage.batches_per_step, layout.width, n_rows)
        return lay_out_batches(clients, layout, shape, plans, draws, self.work.like, with_keys, room)

    def _extent(self, program: Program, stage: Stage, n_clients: int) -> tuple[Layout, int, int]:
        """Lanes, rows of a batch, and the most steps; the same in every round."""
        pace = (stage.split, stage.epochs, stage.share, stage.steps, stage.min_steps, stage.has_minimum)
        key = (*pace, stage.rounding, stage.batches_per_step, stage.measure is None, program.scene, n_clients)
        if key not in self._extents:
            everyone, n_rows = self.work.extent(program, stage)
            layout = lay_out(everyone, n_clients)
            self._extents[key] = layout, n_rows, layout.most_steps(everyone, n_clients)
        return self._extents[key]


def _key(program: Program, stage: Stage, clients: list[int]) -> _Key:
    return program.clock.round, stage.name, tuple(clients)
