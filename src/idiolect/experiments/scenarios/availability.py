"""Whether the data of a scenario are on this machine, and how to get them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from idiolect import data
from idiolect.data.location import data_folder, fetch_again
from idiolect.data.sources import SOURCES
from idiolect.errors import UserError, unknown_name
from idiolect.experiments.scenarios.scenario import Scenario

__all__ = ["Availability", "availability", "refuse_missing"]


class Availability(NamedTuple):
    """Args:
    dataset: its name, without options.
    advice: how to get it; empty where it is there.
    """

    dataset: str
    present: bool
    where: str
    advice: str


def availability(dataset: str, data_dir: str | Path | None = None) -> Availability:
    """
    >>> availability("fashion-mnist-12k").present
    True
    """
    name = dataset.partition("(")[0].strip()
    row = next((row for row in data.describe(data_dir) if row.name == name), None)
    if row is None:
        raise unknown_name("dataset", name, data.names())
    present = row.status == "present"
    advice = "" if present else fetch_again(SOURCES[name], data_folder(data_dir))
    return Availability(name, present, row.where, advice)


def refuse_missing(scenario: Scenario, data_dir: str | Path | None = None) -> None:
    """Raises where the data are not on this machine."""
    found = availability(scenario.dataset, data_dir)
    if not found.present:
        raise UserError(
            f"scenario {scenario.name} needs the dataset {found.dataset}, which is not on this machine (looked in "
            f"{found.where}); {found.advice}"
        )
