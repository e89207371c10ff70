"""What is asked of a reproduction, and the experiment of each run that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from idiolect.errors import unknown_name
from idiolect.experiments.execution import Execution
from idiolect.experiments.jobs.campaign import RunOutcome, RunRequest, run_campaign
from idiolect.experiments.spec import Experiment
from idiolect.option_parsing import with_options
from idiolect.reproduction.papers import MetricReading
from idiolect.reproduction.quick_experiment import QUICK_NOTE, quick_experiment, quick_model, quick_reading
from idiolect.reproduction.results import Results
from idiolect.reproduction.scenarios import find_scenario

__all__ = ["ReproductionRequest", "refuse_unknown_names"]


@dataclass(frozen=True)
class ReproductionRequest:
    """What is asked of a reproduction.

    Args:
        preset: preset of the scenarios.
        quick: runs small versions of the scenarios, which are never compared with the paper.
        columns: columns of a table, or scenarios of a figure; empty for all.
        methods: names of methods; empty for all.
        rows: labels of a table's rows; empty for all.
        formats: file formats of a figure's picture.
        every_round: evaluates the selected clients in every round, as figures of single rounds need it.
        delta: for local degradation; see ``MetricReading``.
        grid: settings of methods by name, all of which are run; empty runs each method as the scenario sets it.
        precision: number format of all runs; None leaves the scenario's.
        settings: of the experiment, on top of the preset's, as a search tries them.
        results: where outcomes are read from; None makes the runs.
    """

    preset: str = "paper"
    seeds: tuple[int, ...] = (0,)
    quick: bool = False
    columns: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    formats: Sequence[str] = ("png",)
    every_round: bool = False
    delta: str = "selection"
    grid: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    precision: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    results: Results | None = None

    def outcomes(self, requests: Sequence[RunRequest], execution: Execution) -> dict[Hashable, RunOutcome]:
        """Returns what the requests take from their runs, which are made, or read from the results."""
        if self.results is not None:
            return self.results.outcomes(requests)
        return run_campaign(requests, execution)

    def with_recorded_seeds(self, outcomes: Callable[[int], Iterable[RunOutcome]]) -> ReproductionRequest:
        """Returns the request with those seeds of which results have every run; the same without results or such seeds.

        Args:
            outcomes: returns what the runs of a seed gave.
        """
        if self.results is None:
            return self
        present = tuple(seed for seed in self.seeds if not any(one.missing for one in outcomes(seed)))
        return replace(self, seeds=present) if present else self

    def wants(self, column: str, method: str) -> bool:
        """Whether a column (or scenario) and a method, with or without options, are asked for."""
        name = method.partition("(")[0]
        return (not self.columns or column in self.columns) and (not self.methods or name in self.methods)

    def experiment(
        self, scenario: str, method: str, seed: int, settings: Mapping[str, Any] | None = None
    ) -> tuple[Experiment, tuple[str, ...]]:
        """Returns the experiment and the notes of its run; `settings` go on top of the scenario's."""
        found = find_scenario(scenario)
        changed = {**self.settings, **(settings or {})}
        experiment = replace(found.experiment(method, self.preset), **changed, seed=seed)
        tried = "".join(f", with {key}={value}" for key, value in self.settings.items())
        notes = [f"scenario {found.name}, preset {self.preset}{tried}"]
        if self.precision is not None:
            experiment = replace(experiment, precision=self.precision)
        if self.every_round:
            experiment = replace(experiment, observe="always")
        if self.quick:
            return quick_experiment(experiment), (*notes, QUICK_NOTE)
        warning = found.warning_of(self.preset)
        return experiment, (*notes, *([f"warning: {warning}"] if warning else []))

    def shown_name(self, name: str, scenarios: Iterable[str]) -> str:
        """Returns the name of a column or panel; a quick one also names the networks that stand in for the paper's."""
        if not self.quick:
            return name
        models: dict[str, None] = {}
        for scenario in scenarios:
            paper = find_scenario(scenario).experiment("fedavg", self.preset).model
            if (small := quick_model(paper)) != paper:
                models[small] = None
        return f"{name} ({', '.join(models)} instead)" if models else name

    def reading(self, reading: MetricReading) -> MetricReading:
        """Returns the reading as it applies to the runs of this request."""
        reading = replace(reading, delta=self.delta)
        return quick_reading(reading) if self.quick else reading

    def settings_of(self, method: str) -> list[str]:
        """Returns the method in every setting of the grid, or as it is where the grid does not name it."""
        tried = self.grid.get(method.partition("(")[0].strip(), [{}])
        return [with_options(method, options) for options in tried]


def refuse_unknown_names(kind: str, asked: Iterable[str], known: Iterable[str]) -> None:
    """Raises where a name that was asked for is not known; `kind` is the word for such a name."""
    known = list(known)
    for name in asked:
        if name not in known:
            raise unknown_name(kind, name, known)
