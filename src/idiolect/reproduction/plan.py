"""What was asked of a reproduction, and the experiment that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from idiolect.experiments.spec import Experiment
from idiolect.options import with_options
from idiolect.reproduction.papers import Reading
from idiolect.reproduction.quick import MARK, quick, quick_reading
from idiolect.reproduction.scenarios import find

__all__ = ["Ask"]


@dataclass(frozen=True)
class Ask:
    """Args:
    quick: small stand-ins of the scenarios, never compared with the paper.
    every_round: selected clients are looked at in every round, as figures of single rounds need it.
    delta: of local degradation; see ``Reading``.
    grid: settings of methods by name, all of them run; empty runs each method as the scenario sets it.
    """

    preset: str = "paper"
    seeds: tuple[int, ...] = (0,)
    quick: bool = False
    every_round: bool = False
    delta: str = "selection"
    grid: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)

    def experiment(
        self, scenario: str, method: str, seed: int, settings: Mapping[str, Any] | None = None
    ) -> tuple[Experiment, tuple[str, ...]]:
        """The experiment and the notes of its run."""
        found = find(scenario)
        experiment = replace(found.experiment(method, self.preset), **settings or {}, seed=seed)
        notes = [f"scenario {found.name}, preset {self.preset}"]
        if self.every_round:
            experiment = replace(experiment, observe="always")
        if self.quick:
            return quick(experiment), (*notes, MARK)
        warning = found.warning_of(self.preset)
        return experiment, (*notes, *([f"warning: {warning}"] if warning else []))

    def reading(self, reading: Reading) -> Reading:
        reading = replace(reading, delta=self.delta)
        return quick_reading(reading) if self.quick else reading

    def settings(self, method: str) -> list[str]:
        """The method in every setting of the grid, or as it is where the grid says nothing of it."""
        tried = self.grid.get(method.partition("(")[0].strip(), [{}])
        return [with_options(method, options) for options in tried]
