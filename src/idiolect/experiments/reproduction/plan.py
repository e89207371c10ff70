"""What was asked of a reproduction, and the experiment that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from idiolect.experiments.papers import Reading
from idiolect.experiments.reproduction.quick import MARK, quick, quick_reading
from idiolect.experiments.scenarios import find
from idiolect.experiments.spec import Experiment
from idiolect.options import parse_call, split_outside_brackets, write_call

__all__ = ["Ask", "with_options"]


def with_options(method: str, options: Mapping[str, Any], term: str = "") -> str:
    """The method with more options, which win over those in the text; ``term`` names the one of a sum they go to.

    >>> with_options("SuPerFed-MM(phase_one=0.4)", {"phase_one": 0.1})
    'superfed_mm(phase_one=0.1)'
    >>> with_options("fedavg + restricted_softmax()", {"alpha": 0.5}, "restricted_softmax")
    'fedavg + restricted_softmax(alpha=0.5)'
    """
    terms = [parse_call(_plain(text)) for text in split_outside_brackets(method, "+")]
    chosen = term or terms[0][0]
    return " + ".join(
        write_call(name, {**given, **(options if name == chosen else {})}) for name, given in terms
    )


def _plain(term: str) -> str:
    name, bracket, rest = term.partition("(")
    return name.strip().lower().replace("-", "_") + bracket + rest


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
