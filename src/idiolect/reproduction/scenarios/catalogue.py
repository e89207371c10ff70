"""Scenarios by name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from idiolect.data.availability import availability
from idiolect.errors import UserError, unknown_name
from idiolect.experiments.spec import Experiment
from idiolect.reproduction.scenarios.reader import read_scenarios
from idiolect.reproduction.scenarios.scenario import Scenario

__all__ = ["find", "refuse_missing", "scenario", "scenarios"]

PAPERS = ("fedper", "fedphp", "map", "persfl", "superfed")


@cache
def _all() -> dict[str, Scenario]:
    texts = (
        (files("idiolect.reproduction.scenarios") / f"{name}.toml").read_text("utf-8") for name in PAPERS
    )
    return {found.name: found for text in texts for found in read_scenarios(text)}


def scenarios() -> tuple[Scenario, ...]:
    """Every scenario, paper by paper."""
    return tuple(_all().values())


def find(name: str) -> Scenario:
    """
    >>> find("map-c10-tfcnn").presets
    ('paper', 'official', 'clipped')
    """
    by_name = {known.lower(): found for known, found in _all().items()}
    if name.lower() not in by_name:
        raise unknown_name("scenario", name, _all())
    return by_name[name.lower()]


def scenario(name: str, preset: str = "paper", method: str = "fedavg") -> Experiment:
    """The experiment that a paper made, for one method.

    >>> scenario("map-fa-lenet", method="map").local_epochs
    5
    """
    return find(name).experiment(method, preset)


def refuse_missing(scenario: Scenario, data_dir: str | Path | None = None) -> None:
    """Raises where the data are not on this machine."""
    found = availability(scenario.dataset, data_dir)
    if not found.present:
        raise UserError(
            f"scenario {scenario.name} needs the dataset {found.dataset}, which is not on this machine (looked in "
            f"{found.where}); {found.advice}"
        )
