"""The local work of a client: optimiser steps and floating-point operations of the stages that it runs.

Steps are those of training stages.  Operations are those of training and measuring stages, from one counted step of
each (``engines.stage_flops``) times the batches that the client reads.  Scoring a model for the record is not work of
the method, and the server's own stages are not work of a client.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from idiolect.core import Program, Stage
from idiolect.engines.device_data import EVALUATION_ROWS
from idiolect.engines.stage_flops import StageFlops, count_stages
from idiolect.experiments.setting import Setting
from idiolect.federation import batches_per_epoch
from idiolect.models import is_registered

__all__ = ["Work", "WorkCounter"]

SMALL = 1_000_000  # parameters up to which a step with numbers is quicker than one without


class Work(NamedTuple):
    """What a client did: optimiser steps, and floating-point operations, NaN where nobody could count them."""

    steps: int
    flops: float

    def plus(self, other: Work) -> Work:
        """Returns both together.

        >>> Work(2, 10.0).plus(Work(1, 5.0))
        Work(steps=3, flops=15.0)
        """
        return Work(self.steps + other.steps, self.flops + other.flops)


class WorkCounter:
    """Counts the work of clients; the operations of a step are counted when they are first asked for.

    Attributes:
        problem: why operations could not be counted; empty if they could.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._known: dict[tuple[object, ...], Work] = {}
        self.problem = ""

    def count_steps(self) -> None:
        """Counts the operations of a step now, before anybody waits for an answer."""
        self._counted  # noqa: B018 - is kept

    def of(self, program: Program, phase: str, clients: Sequence[int]) -> list[Work]:
        """Returns by client its work in a phase of the program's round.

        Args:
            phase: ``round`` for the stages before and after the upload, else ``merged`` or ``end``.
        """
        plan = program.method.plan(program.scene, program.clock)
        stages = (*plan.before, *plan.after) if phase == "round" else getattr(plan, phase)
        found = [Work(0, 0.0)] * len(clients)
        for stage in stages:
            found = [
                w.plus(self._stage(program, phase, stage, c)) for w, c in zip(found, clients, strict=True)
            ]
        return found

    def of_joining(self, program: Program, clients: Sequence[int]) -> list[Work]:
        """Returns by newcomer its work in joining: a round, and the phases after it."""
        each = [self.of(program, phase, clients) for phase in ("round", "merged", "end")]
        return [first.plus(second).plus(third) for first, second, third in zip(*each, strict=True)]

    def _stage(self, program: Program, phase: str, stage: Stage, client: int) -> Work:
        steps = self._setting.work.steps(program, stage, client)
        held = self._setting.work.at(program.clock.round).federation.clients[client]
        rows = len(getattr(held, stage.split))
        key = (program.clock.newcomer, phase, stage.name, rows, steps)
        if key not in self._known:
            flops = self._flops(program, phase, stage, rows, steps)
            self._known[key] = Work(0 if stage.measure else steps, flops)
        return self._known[key]

    def _flops(self, program: Program, phase: str, stage: Stage, rows: int, steps: int) -> float:
        """Returns the operations of a stage; batches of one step share its operations equally."""
        counted = self._counted.get((program.clock.newcomer, phase, stage.name))
        if counted is None:
            return math.nan
        size = EVALUATION_ROWS if stage.measure else program.scene.batch_size
        per_epoch = batches_per_epoch(rows, size, self._setting.work.drop_single and not stage.measure)
        batches = steps * (1 if stage.measure else stage.batches_per_step)
        epochs, rest = divmod(batches, per_epoch) if per_epoch else (0, 0)
        last = rows - (per_epoch - 1) * size if rows < per_epoch * size else size
        full = epochs * (per_epoch - 1) + rest
        total = full * counted.of(size) + epochs * counted.of(last)
        return total / (1 if stage.measure else stage.batches_per_step)

    @cached_property
    def _counted(self) -> dict[tuple[bool, str, str], StageFlops]:
        """Operations of a step by stage; empty, with ``problem`` set, where a step cannot be counted."""
        setting = self._setting
        found: dict[tuple[bool, str, str], StageFlops] = {}
        with_numbers = is_registered(setting.experiment.model) or setting.n_parameters <= SMALL
        inputs = (setting.initial(0), setting.work.x, setting.federation.n_classes)
        try:
            for program in setting.programs_with_every_stage():
                counted = count_stages(program, *inputs, with_numbers)
                found |= {(program.clock.newcomer, *key): flops for key, flops in counted.items()}
        except Exception as error:  # a count must never stop a run
            self.problem = (
                f"{type(error).__name__} {str(error).strip().splitlines()[0] if str(error) else ''}".strip()
            )
            return {}
        return found
