"""Reads the scenarios' TOML files and finds scenarios by name; a malformed file is refused on loading.

A scenario starts from the ``common`` block of its file, or from the scenario that it is ``like``; its own values win.
A setting that a scenario states as the paper's replaces an inferred one below it, and the other way round.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from idiolect.data.availability import availability
from idiolect.errors import UserError, unknown_name
from idiolect.experiments.spec import Experiment
from idiolect.experiments.sweep.parameter_grids import with_none
from idiolect.reproduction.papers import figures, tables
from idiolect.reproduction.papers.catalogue import PAPERS
from idiolect.reproduction.scenarios.scenario import ORIGINS, SETTINGS, Scenario

__all__ = [
    "ScenarioUses",
    "find_scenario",
    "read_scenarios",
    "refuse_missing_data",
    "scenario",
    "scenario_uses",
    "scenarios",
]

Block = Mapping[str, Any]

SCALAR_KEYS = {"name", "like", "line", "expected_clients", "differs", "warning", "cannot"}
KEYS_BY_METHOD = ("options", "defaults", "official_options", "reproduction_options", "settings")
OPTIONAL_LAYERS = (
    "official",
    "clipped",
    "reproduction",
)  # a scenario that has one, be it empty, has that preset
TABLE_KEYS = (*ORIGINS, "because", *KEYS_BY_METHOD)


class ScenarioUses(NamedTuple):
    """Where the papers use a scenario: the ids of tables and figures, and the methods that they show in it."""

    tables: tuple[str, ...]
    figures: tuple[str, ...]
    methods: tuple[str, ...]


def scenarios() -> tuple[Scenario, ...]:
    """Returns every scenario, paper by paper."""
    return tuple(_all_scenarios().values())


def find_scenario(name: str) -> Scenario:
    """Returns a scenario by its name, in capitals or small letters.

    >>> find_scenario("map-c10-tfcnn").presets
    ('paper', 'official', 'clipped', 'reproduction')
    """
    by_name = {known.lower(): found for known, found in _all_scenarios().items()}
    if name.lower() not in by_name:
        raise unknown_name("scenario", name, _all_scenarios(), "`idiolect scenarios` lists the scenarios")
    return by_name[name.lower()]


def scenario(name: str, preset: str = "paper", method: str = "fedavg") -> Experiment:
    """Returns the experiment that a paper made, for one method.

    >>> scenario("map-fa-lenet", method="map").local_epochs
    5
    """
    return find_scenario(name).experiment(method, preset)


def scenario_uses(name: str) -> ScenarioUses:
    """Returns the tables and figures that use a scenario, and the methods that they show in it.

    >>> scenario_uses("map-dir-fa-lenet").tables
    ('map-table3',)
    """
    cells = [cell for table in tables() for cell in table.cells if name in cell.scenarios]
    shown = [figure for figure in figures() if name in figure.scenarios]
    lines = [line for figure in shown for line in figure.lines if name in line.scenarios]
    methods = [cell.method for cell in cells if cell.method] + [line.method for line in lines]
    return ScenarioUses(
        tuple(dict.fromkeys(cell.table for cell in cells)),
        tuple(figure.id for figure in shown),
        tuple(dict.fromkeys(methods)),
    )


def refuse_missing_data(scenario: Scenario, data_dir: str | Path | None = None) -> None:
    """Raises where the scenario's dataset is not on this machine."""
    found = availability(scenario.dataset, data_dir)
    if not found.present:
        raise UserError(
            f"scenario {scenario.name} needs the dataset {found.dataset}, which is not on this machine (looked in "
            f"{found.where}); {found.advice}"
        )


@cache
def _all_scenarios() -> dict[str, Scenario]:
    folder = files("idiolect.reproduction.scenarios")
    texts = [(folder / f"{name}.toml").read_text("utf-8") for name in PAPERS]
    return {found.name: found for text in texts for found in read_scenarios(text)}


def read_scenarios(text: str) -> list[Scenario]:
    """Returns the scenarios of a TOML text."""
    document = tomllib.loads(text)
    merged: dict[str, dict[str, Any]] = {}
    for block in document["scenario"]:
        strange = set(block) - SCALAR_KEYS - set(TABLE_KEYS)
        if strange:
            raise ValueError(f"scenario {block.get('name')}: unknown {', '.join(sorted(strange))}")
        if block["name"] in merged:
            raise ValueError(f"scenario {block['name']} stands twice")
        below = merged[block["like"]] if "like" in block else document["common"]
        merged[block["name"]] = _merged(below, block)
    return [_scenario(document["paper"], block) for block in merged.values()]


def _merged(below: Block, above: Block) -> dict[str, Any]:
    """Returns one block of two, of which ``above`` wins."""
    found = {key: value for key, value in {**below, **above}.items() if key != "like"}
    for table in TABLE_KEYS:
        if table in OPTIONAL_LAYERS and table not in below and table not in above:
            continue
        low, high = below.get(table, {}), above.get(table, {})
        if table in KEYS_BY_METHOD:
            found[table] = {name: {**low.get(name, {}), **high.get(name, {})} for name in {**low, **high}}
        else:
            found[table] = {**low, **high}
    for own, other in (("paper", "inferred"), ("inferred", "paper")):
        stated = set(above.get(own, {})) - set(above.get(other, {}))
        moved = (stated & set(below.get(other, {}))) - set(above.get("because", {}))
        found[other] = {key: value for key, value in found[other].items() if key not in stated}
        found["because"] = {key: why for key, why in found["because"].items() if key not in moved}
    return found


def _scenario(paper: str, block: Block) -> Scenario:
    layers = {origin: block[origin] for origin in ORIGINS if origin in block}
    of_one_method = {key for settings in block["settings"].values() for key in settings}
    for key in of_one_method.union(*layers.values()):
        if key not in SETTINGS:
            raise ValueError(f"scenario {block['name']}: experiments have no setting {key}")
    clients = {**layers["paper"], **layers["inferred"]}["clients"]
    return Scenario(
        name=block["name"],
        paper=paper,
        line=block["line"],
        expected_clients=block.get("expected_clients", clients),
        differs=tuple(block.get("differs", ())),
        warning=block.get("warning", ""),
        cannot=block.get("cannot", ""),
        layers=layers,
        reasons=block["because"],
        options=block["options"],
        defaults=with_none(block["defaults"]),
        official_options=block["official_options"],
        reproduction_options=block["reproduction_options"],
        method_settings=block["settings"],
    )
