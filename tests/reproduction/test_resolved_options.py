"""Every method of a paper's scenes and grids runs with the options that it always ran with, whatever the defaults.

After a deliberate change of a scene or grid, `python tests/reproduction/test_resolved_options.py` writes the file anew.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from idiolect.core import Method
from idiolect.experiments.sweep.parameter_grids import combinations, grid, grids
from idiolect.methods.catalogue import METHODS
from idiolect.methods.method_text import resolved
from idiolect.methods.moon import moon
from idiolect.option_parsing import parse_call, with_options, write_call
from idiolect.reproduction.papers import figures, tables
from idiolect.reproduction.scenarios import Scenario, find_scenario, scenarios

STORED = Path(__file__).with_name("resolved_options.json")
Found = dict[str, dict[str, dict[str, str]]]


def asked(scenario: Scenario, preset: str) -> Iterator[str]:
    """The methods that the paper's tables and figures run in a scenario, in every setting that was tried."""
    for cell in (cell for table in tables() for cell in table.cells if scenario.name in cell.scenarios):
        name = (
            cell.official_method if "paper" != preset != "clipped" and cell.official_method else cell.method
        )
        if name:
            tried = grid("map").methods.get(name, []) if cell.table.startswith("map-table") else []
            for options in ({}, *tried):
                yield with_options(with_options(name, options), cell.options)
    for figure in figures():
        for line in (line for line in figure.lines if scenario.name in line.scenarios and line.method):
            for options in combinations(figure.options):
                yield with_options(line.method, options)


def written(text: str) -> str:
    return " + ".join(write_call(name, options) for name, options in resolved(text))


def options_of_scenes() -> Found:
    """By preset of a paper's scenarios and method as it is asked for: the options, and the scenarios that have them."""
    found: Found = {}
    for scenario in scenarios():
        for preset in scenario.presets:
            of_preset = found.setdefault(f"{scenario.paper}, preset {preset}", {})
            for text in dict.fromkeys(asked(scenario, preset)):
                whole = written(scenario.method_text(text, preset))
                names = of_preset.setdefault(text, {})
                names[whole] = f"{names.get(whole, '')} {scenario.name}".strip()
    return found


def options_of_grids() -> dict[str, list[str]]:
    return {
        f"{name}, {method}": [written(write_call(method, options)) for options in tried]
        for name, found in grids().items()
        for method, tried in found.settings(in_scene=False).items()
    }


def current() -> dict[str, Any]:
    return {"scenes": options_of_scenes(), "grids": options_of_grids()}


def test_clipping_changes_no_option():
    found = options_of_scenes()
    assert found["map, preset clipped"] == found["map, preset paper"]


@pytest.mark.parametrize("kind", ["scenes", "grids"])
def test_options_of_scenes_and_grids_are_those_that_are_stored(kind):
    stored = json.loads(STORED.read_text(encoding="utf-8"))[kind]
    found = current()[kind]
    assert set(found) - {"map, preset clipped"} == set(stored)
    for where in stored:
        assert found[where] == stored[where], where


# ---- no scene and no grid leans on a default


def signature(name: str) -> set[str]:
    return set(inspect.signature(METHODS[name].make).parameters)


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_scene_states_every_option_of_the_methods_of_its_paper(scenario):
    names = {parse_call(text)[0] for preset in scenario.presets for text in asked(scenario, preset)}
    for name in names:
        stated = {*scenario.options.get(name, {}), *scenario.defaults.get(name, {})}
        assert stated == signature(name), name


@pytest.mark.parametrize("name", grids())
def test_grid_states_every_option_of_its_methods(name):
    for method, tried in grid(name).methods.items():
        for options in tried:
            assert {*options, *grid(name).defaults.get(method, {})} == signature(method), method


def test_change_of_a_default_changes_no_scene_and_no_grid(monkeypatch):
    before = current()

    def changed(weight: float = 7.0, temperature: float = 0.7, previous_init: str = "theta0") -> Method:
        return moon(weight, temperature, previous_init)

    monkeypatch.setitem(METHODS, "moon", METHODS["moon"]._replace(make=changed))
    assert resolved("moon") == [("moon", {"weight": 7.0, "temperature": 0.7, "previous_init": "theta0"})]
    assert current() == before
    text = find_scenario("map-fa-lenet").method_text
    assert text("moon") == "moon(temperature=0.5, previous_init=received, weight=0.01)"
    assert text("moon", "official") == "moon(preset=official, temperature=0.5, weight=0.01)"


if __name__ == "__main__":
    whole = current()
    del whole["scenes"]["map, preset clipped"]
    STORED.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
