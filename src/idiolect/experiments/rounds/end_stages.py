"""What the stages at the end of a run will cost, before they begin: a grid of students is many rounds' work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from idiolect.core import Program, Stage
from idiolect.experiments.setting import Setting

__all__ = ["EndProgress", "EndStages", "end_stages"]

LOOKED_AT = 64  # clients whose steps are counted for an estimate
BACKWARD = 3  # a training step computes about three times as much as a forward pass
WORTH_SAYING = 0.1  # of the work of all rounds, and at least that of a few
FEW = 5


class EndStages(NamedTuple):
    """The stages that every client runs once after the last round.

    Args:
        training: how many of them train.
        epochs: passes over a client's training data in all of them together.
        clients: how many clients run them.
        rounds: their work, in rounds of the run.
        share: their work, as a share of that of all rounds.
    """

    training: int
    epochs: float
    clients: int
    rounds: float
    share: float

    @property
    def is_long(self) -> bool:
        """Whether the user should know of them before the run begins."""
        return self.share >= WORTH_SAYING and self.rounds >= FEW

    def announcement(self, label: str) -> str:
        """Says what the stages will cost."""
        stages = "1 training stage" if self.training == 1 else f"{self.training} training stages"
        return (
            f"{label} ends with {stages} on each of {self.clients} clients, {self.epochs:g} epochs in all: about as "
            f"much work as {self.rounds:.3g} rounds"
        )


@dataclass
class EndProgress:
    """Counts the stages at the end of a run that are done, those of each client counted.

    Args:
        each: stages of one client.
        total: stages of all clients.
        tell: is told how many are done, and the total.
    """

    each: int
    total: int
    tell: Callable[[int, int], None] | None
    done: int = 0

    @classmethod
    def of(
        cls, program: Program, phase: str, clients: int, tell: Callable[[int, int], None] | None
    ) -> EndProgress:
        """Returns the count before the first stage; only the phase ``end`` is told of."""
        each = len(program.method.plan(program.scene, program.clock).end) if phase == "end" else 0
        return cls(each, each * clients, tell if each else None)

    def add(self, stages: int) -> None:
        self._set(self.done + stages)

    def reach(self, clients: int) -> None:
        """So many clients are through, whatever the engine has told."""
        self._set(clients * self.each)

    def _set(self, done: int) -> None:
        self.done = min(done, self.total)
        if self.tell is not None:
            self.tell(self.done, self.total)


def end_stages(setting: Setting) -> EndStages | None:
    """Estimates the stages at the end of a run from the method's plan; None where there are none."""
    experiment, population = setting.experiment, setting.federation.population
    program = setting.program(experiment.rounds - 1)
    plan = program.method.plan(program.scene, program.clock)
    if not plan.end:
        return None
    everyone = _work(setting, plan.end) * population
    cohort = _work(setting, (*plan.before, *plan.after)) * program.clock.cohort_size
    round = cohort + _work(setting, plan.merged) * population
    training = [stage for stage in plan.end if stage.measure is None]
    epochs = sum(s.share * experiment.local_epochs if s.epochs is None else s.epochs for s in training)
    rounds = everyone / round if round else 0.0
    return EndStages(len(training), epochs, population, rounds, rounds / experiment.rounds)


def _work(setting: Setting, stages: Iterable[Stage]) -> float:
    """Returns the forward passes over a batch that the stages take, a mean over some clients."""
    population, program = setting.federation.population, setting.program(setting.experiment.rounds - 1)
    looked_at = np.unique(np.linspace(0, population - 1, LOOKED_AT).astype(int)).tolist()
    total = 0.0
    for stage in stages:
        steps = sum(setting.work.steps(program, stage, client) for client in looked_at)
        total += steps * (1 if stage.measure else BACKWARD * stage.batches_per_step)
    return total / len(looked_at)
