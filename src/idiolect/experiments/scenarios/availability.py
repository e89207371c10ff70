"""Whether the data of a scenario are on this machine, and how to get them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from idiolect import data
from idiolect.errors import UserError
from idiolect.experiments.scenarios.scenario import Scenario

__all__ = ["Availability", "availability", "refuse_missing"]


class Availability(NamedTuple):
    """Args:
    dataset: its name, without options.
    command: gets it; empty where there is nothing to get.
    """

    dataset: str
    present: bool
    where: str
    command: str


def availability(dataset: str, data_dir: str | Path | None = None) -> Availability:
    """
    >>> availability("fashion-mnist-12k").present
    True
    """
    name = dataset.partition("(")[0].strip()
    row = next((row for row in data.describe(data_dir) if row.name == name), None)
    present = row is not None and row.status == "present"
    place = f" --data-dir {data_dir}" if data_dir else ""
    command = "" if present else f"idiolect datasets get {name}{place}"
    return Availability(name, present, row.where if row else "", command)


def refuse_missing(scenario: Scenario, data_dir: str | Path | None = None) -> None:
    """Raises where the data are not on this machine."""
    found = availability(scenario.dataset, data_dir)
    if not found.present:
        looked = f" (looked in {found.where})" if found.where else ""
        raise UserError(
            f"scenario {scenario.name} needs the dataset {found.dataset}, which is not on this machine{looked}; "
            f"get it with `{found.command}`"
        )
