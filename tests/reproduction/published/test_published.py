"""Every setting, option, reading and grid of the five papers, typed in from the papers and from their authors' code.

The published numbers themselves are checked in ``test_papers.py``, by the sums of their rows and columns.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files

import pytest

from idiolect.experiments.sweep.parameter_grids import grid, grids
from idiolect.reproduction import papers
from idiolect.reproduction.papers.metric_reading import READING_KEYS
from idiolect.reproduction.scenarios import find_scenario, scenarios

from . import fedper, fedphp, map_, persfl, superfed
from .expectations import facts

PAPERS = {"fedper": fedper, "fedphp": fedphp, "map": map_, "persfl": persfl, "superfed": superfed}
SCENES = {name: (id, scene) for id, paper in PAPERS.items() for name, scene in paper.SCENES.items()}
TABLES = {name: (id, table) for id, paper in PAPERS.items() for name, table in paper.TABLES.items()}
FIGURES = {name: (id, figure) for id, paper in PAPERS.items() for name, figure in paper.FIGURES.items()}
GRIDS = {
    name: (grid, paper.GRID_DEFAULTS[name]) for paper in PAPERS.values() for name, grid in paper.GRIDS.items()
}


@pytest.mark.parametrize("name", SCENES)
def test_scene_has_the_settings_and_options_of_its_paper(name):
    paper, expected = SCENES[name]
    scene = find_scenario(name)
    found = facts(scene)
    del found["layers"]
    found["presets"] = {
        preset: {key: (layer.value, layer.origin) for key, layer in scene.settings(preset).items()}
        for preset in scene.presets
    }
    assert found == {"name": name, "paper": paper, **expected}


BEST_OF_THREE = "the best of three settings of each method, and the SD over the three"
CHOICES = {"map-table1": BEST_OF_THREE, "map-table2": BEST_OF_THREE}


@pytest.mark.parametrize("id", TABLES)
def test_table_reads_what_its_paper_reports(id):
    paper, expected = TABLES[id]
    found = facts(papers.table(id))
    cells = {(cell.pop("row"), cell.pop("column")): cell for cell in found.pop("cells")}
    for cell in cells.values():
        assert cell.pop("table") == id
        del cell["value"], cell["spread"]
    assert found.pop("choice") == CHOICES.get(id, "")
    assert {"cells": cells, **found} == {"id": id, "paper": paper, **expected}


@pytest.mark.parametrize("id", FIGURES)
def test_figure_reads_what_its_paper_shows(id):
    paper, expected = FIGURES[id]
    assert facts(papers.figure(id)) == {"id": id, "paper": paper, **expected}


@pytest.mark.parametrize("name", GRIDS)
def test_grid_is_what_the_authors_tried(name):
    methods, defaults = GRIDS[name]
    assert grid(name)._replace(about="") == (name, "", methods, defaults)


def test_everything_in_the_package_has_an_expectation():
    assert {scene.name for scene in scenarios()} == set(SCENES)
    assert {table.id for table in papers.tables()} == set(TABLES)
    assert {figure.id for figure in papers.figures()} == set(FIGURES)
    assert set(grids()) == set(GRIDS)


def test_papers_name_their_own_method_and_the_runs_that_they_average():
    assert facts(tuple(papers.papers().values())) == [
        {"id": id, "method": paper.METHOD, "seeds": paper.SEEDS} for id, paper in PAPERS.items()
    ]


@pytest.mark.parametrize("paper", PAPERS)
def test_files_hold_no_block_that_the_package_passes_over(paper):
    def read(folder: str) -> dict:
        return tomllib.loads((files(f"idiolect.reproduction.{folder}") / f"{paper}.toml").read_text("utf-8"))

    scenes, reported = read("scenarios"), read("papers")
    assert set(scenes) == {"paper", "common", "scenario"}
    layers = {"paper", "inferred", "official", "clipped", "reproduction", "because"}
    assert set(scenes["common"]) <= layers | {
        *("options", "defaults", "official_options", "reproduction_options", "settings")
    }
    common = scenes["common"]
    assert not _stated_twice(common["options"].items(), common["defaults"])
    assert set(reported) <= {"paper", "table", "figure", "lines"}
    assert all(set(shared) == {"reading", "line"} for shared in reported.get("lines", {}).values())
    assert all(set(table.get("reading", {})) <= READING_KEYS for table in reported.get("table", []))
    varied = [figure.get("vary", {}) for figure in reported.get("figure", [])]
    assert all(set(vary) <= {"options", "settings"} for vary in varied)


def _stated_twice(options, defaults) -> list[str]:
    """Options of methods that have a default beside them, which would then mean nothing."""
    return [f"{name} {key}" for name, known in options for key in known if key in defaults.get(name, {})]


def test_grids_hold_no_block_that_the_package_passes_over():
    text = (files("idiolect.experiments.sweep") / "parameter_grids.toml").read_text("utf-8")
    assert {frozenset(block) for block in tomllib.loads(text).values()} == {
        frozenset(("about", "methods", "defaults"))
    }
    for found in grids().values():
        settings = [(name, one) for name, tried in found.methods.items() for one in tried]
        assert not _stated_twice(settings, found.defaults)
