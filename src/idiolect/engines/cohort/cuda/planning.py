"""The plans of stages on lanes: made when they are asked for, or ahead of time while the device is busy."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from idiolect.core import Program, Stage
from idiolect.engines.cohort.cuda.lanes import Layout, lay_out
from idiolect.engines.cohort.cuda.stage_plan import Shape, StagePlan, lay_out_batches
from idiolect.engines.workload import Workload
from idiolect.federation import BatchPlan

__all__ = ["Planner"]

KEPT = 8  # plans of measuring that are kept
HELD = 64 << 20  # bytes of plans of coming rounds, from which no more are made

_Key = tuple[int, str, tuple[int, ...]]  # round, stage, clients


class _Begun(NamedTuple):
    """Batches and draws of the first clients of a group, with the keys of examples or without."""

    with_keys: bool
    own: list[tuple[BatchPlan, dict[str, np.ndarray]]]


@dataclass
class Planner:
    """Args:
    reads_keys: by stage, whether its step depends on the keys of examples; a stage not in it may.
    """

    work: Workload
    reads_keys: dict[str, bool] = field(default_factory=dict)
    _ahead: dict[_Key, StagePlan] = field(default_factory=dict)
    _begun: dict[_Key, _Begun] = field(default_factory=dict)
    _measured: dict[Hashable, StagePlan] = field(default_factory=dict)
    _extents: dict[Hashable, tuple[Layout, int, int]] = field(default_factory=dict)

    def look_ahead(
        self, program: Program, clients: list[int], stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Makes the plans of a coming round, where they are not made and others do not hold much memory.

        Args:
            stop: asked before each client that trains; what is begun by then is finished when it is needed.
        """
        plan = program.method.plan(program.scene, program.clock)
        for stage in (*plan.before, *plan.after):
            key = _key(program, stage, clients)
            held = sum(plan.tickets.nbytes for plan in self._ahead.values())
            if key in self._ahead or held >= HELD:
                continue
            if stage.measure is None:
                begun = self._begun.setdefault(key, _Begun(self._with_keys(stage), []))
                for client in clients[len(begun.own) :]:
                    if stop():
                        return
                    begun.own.append(self.work.plan(program, stage, client, begun.with_keys))
            self._ahead[key] = self.make(program, stage, clients)

    def forget(self) -> None:
        self._ahead.clear()
        self._begun.clear()
        self._measured.clear()

    def plan(self, work: Workload, program: Program, stage: Stage, clients: list[int]) -> StagePlan:
        ahead = self._ahead.pop(_key(program, stage, clients), None)
        for made in (self._ahead, self._begun):
            for key in [key for key in made if key[0] < program.clock.round]:
                del made[key]
        return ahead or self.make(program, stage, clients)

    def make(self, program: Program, stage: Stage, clients: list[int]) -> StagePlan:
        if stage.measure is None:
            return self._laid_out(program, stage, clients, self._with_keys(stage))
        # Rows are measured in their own order, which is the same in every round.
        key = (stage.split, stage.batches_per_step, tuple(clients), program.scene)
        if key not in self._measured:
            if len(self._measured) == KEPT:
                self._measured.pop(next(iter(self._measured)))
            self._measured[key] = self._laid_out(program, stage, clients, with_keys=True)
        return self._measured[key]

    def _laid_out(self, program: Program, stage: Stage, clients: list[int], with_keys: bool) -> StagePlan:
        begun = self._begun.pop(_key(program, stage, clients), None)
        own = begun.own if begun and begun.with_keys >= with_keys else []
        rest = [self.work.plan(program, stage, client, with_keys) for client in clients[len(own) :]]
        plans, draws = zip(*own, *rest, strict=True)
        layout, n_rows, room = self._extent(program, stage, len(clients))
        shape = Shape(stage.batches_per_step, layout.width, n_rows)
        return lay_out_batches(clients, layout, shape, plans, draws, self.work.like, with_keys, room)

    def _with_keys(self, stage: Stage) -> bool:
        return self.reads_keys.get(stage.name, True)

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
