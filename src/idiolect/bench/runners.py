"""What a row runs: an engine of the library, or the plain loop.  Both make the same rounds."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from idiolect.bench.lessons import Lessons, end_lessons, round_lessons
from idiolect.bench.native import values
from idiolect.bench.plain import Plain
from idiolect.core import broadcast
from idiolect.engines import EngineChoice, choose_engine
from idiolect.experiments import Setting, Simulation

__all__ = ["EngineRunner", "PlainRunner", "Runner"]


class Runner(Protocol):
    def ready(self, phase: str) -> None:
        """What need not be timed of the next round, or of the end."""

    def go(self, phase: str) -> None:
        """The next round, or the end of the run."""

    def values(self) -> list[Tensor]:
        """The shared model: parameters, then running statistics."""

    def close(self) -> None:
        """Gives back processes."""


class EngineRunner:
    """An engine inside a run: selection, local training, merge, private state and checks, but no evaluation."""

    def __init__(self, setting: Setting, where: EngineChoice) -> None:
        self.setting = setting
        self.engine = choose_engine(where, setting.work)
        self.simulation = Simulation.start(setting, self.engine)

    def ready(self, phase: str) -> None:
        """An engine plans its batches while the clock runs."""

    def go(self, phase: str) -> None:
        simulation = self.simulation
        if phase == "round":
            simulation.advance()
            return
        program = self.setting.program(simulation.round)
        sent = broadcast(self.setting.method, simulation.server)
        population = self.setting.federation.population
        size = simulation.store.at_once(population, least=program.clock.cohort_size)
        for first in range(0, population, size):
            rows = simulation.store.together(range(first, min(first + size, population)))
            self.engine.settle(program, "end", sent, rows)

    def values(self) -> list[Tensor]:
        server = self.simulation.server
        return [*server["params"].values(), *server["buffers"].values()]

    def close(self) -> None:
        self.engine.close()


class PlainRunner:
    """The plain loop; its batches are looked up before the clock starts."""

    def __init__(self, setting: Setting, kind: type[Plain]) -> None:
        self.setting, self.plain, self.round = setting, kind(setting), 0
        self.lessons: Lessons = {}

    def nudge(self, rounding: float, seed: int) -> None:
        """Makes every number of the shared model larger or smaller by a rounding."""
        random = torch.Generator().manual_seed(seed)
        for value in self.plain.shared.values():
            if value.is_floating_point():
                signs = torch.randint(2, value.shape, generator=random) * 2 - 1
                value *= 1 + rounding * signs.to(value)

    def ready(self, phase: str) -> None:
        lessons = round_lessons if phase == "round" else end_lessons
        self.lessons = lessons(self.setting, self.round)

    def go(self, phase: str) -> None:
        if phase == "round":
            self.plain.round(self.lessons)
            self.round += 1
        else:
            self.plain.end(self.lessons)

    def values(self) -> list[Tensor]:
        self.plain.net.load_state_dict(self.plain.shared)
        return values(self.plain.net)

    def close(self) -> None:
        """Nothing to give back."""
