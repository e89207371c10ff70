"""The best of several settings, as MAP reports it: every column its own best, and the average that of the best."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev
from types import SimpleNamespace

import pandas as pd
import pytest

from idiolect.errors import UserError
from idiolect.experiments.jobs.campaign import RunOutcome
from idiolect.experiments.sweep.parameter_grids import grid
from idiolect.reproduction import request
from idiolect.reproduction.papers import table
from idiolect.reproduction.reproduce import reproduce
from idiolect.reproduction.request import ReproductionRequest
from idiolect.reproduction.scenarios import find_scenario
from idiolect.reproduction.tables import cell_number, cell_requests

LOOP = {"engine": "loop", "device": "cpu"}


def _entry(column: str, accuracies: dict[tuple[int, int, int], float], seeds: int = 1):
    """FedProx's cell of table 1 from made-up accuracies by number of the setting, of the scene and seed."""
    ask = ReproductionRequest(seeds=tuple(range(seeds)), grid=grid("map").methods)
    cell = table("map-table1").cell("FedProx", column)
    settings = ask.settings_of("fedprox")
    outcomes = {}
    for task in cell_requests(cell, ask):
        *_, method, scene, seed = task.key
        where = (settings.index(method), cell.scenarios.index(scene), seed)
        outcomes[task.key] = RunOutcome(pd.Series([accuracies[where]]))
    return cell_number(cell, ask, outcomes)


def test_average_is_the_mean_of_each_columns_best():
    """The first setting is best on even scenes, the third on odd ones, the second has the best mean of one setting."""
    accuracies = {}
    for scene in range(8):
        accuracies |= {(0, scene, 0): 0.9 if scene % 2 == 0 else 0.1, (1, scene, 0): 0.6}
        accuracies[2, scene, 0] = 0.1 if scene % 2 == 0 else 0.7
    one = _entry("avg", accuracies)
    assert one.value == pytest.approx(100 * (4 * 0.9 + 4 * 0.7) / 8)
    assert (one.paper, one.spread, one.rule) == (65.3, None, "oracle")
    assert "map-fa-mlpnet: fedprox(weight=0.0001)" in one.ran_as
    assert "map-fa-lenet: fedprox(weight=0.01)" in one.ran_as


def test_best_is_that_of_the_mean_over_seeds_and_the_interval_is_over_them():
    """Setting 0 of scene 0 is best once and worst once; setting 1 has the best mean."""
    accuracies = {
        (setting, scene, seed): 0.5 for setting in range(3) for scene in range(8) for seed in range(3)
    }
    accuracies |= {(0, 0, 0): 0.9, (0, 0, 1): 0.1, (0, 0, 2): 0.5, (1, 0, 0): 0.5, (1, 0, 1): 0.7}
    one = _entry("avg", accuracies, seeds=3)
    by_seed = [50.0, 100 * (7 * 0.5 + 0.7) / 8, 50.0]
    assert one.value == pytest.approx(fmean(by_seed)) and one.seeds == 3
    low, high = one.interval
    assert low < one.value < high and high - low == pytest.approx(
        2 * 4.303 * stdev(by_seed) / 3**0.5, rel=1e-4
    )


def test_single_column_keeps_the_spread_over_settings():
    one = _entry("fa-lenet", {(0, 0, 0): 0.5, (1, 0, 0): 0.8, (2, 0, 0): 0.6})
    assert (one.value, one.spread) == (pytest.approx(80.0), pytest.approx(stdev([50.0, 80.0, 60.0])))
    assert one.ran_as == "fedprox(weight=0.001)"


def test_figure_made_of_the_tables_takes_the_flag(tiny, monkeypatch, tmp_path):
    """Its points are the averages of the tables, each scene with its own best."""

    def known(name: str):
        def experiment(method: str, preset: str):
            text = find_scenario(name).method_text(method, preset)
            return replace(tiny, method=text, learning_rate=0.02 * (1 + 9 * (len(name) % 2)))

        return SimpleNamespace(name=name, experiment=experiment, warning_of=lambda preset: "")

    monkeypatch.setattr(request, "find_scenario", known)
    asked = {"methods": ["perfedavg_fo"], "out": tmp_path, "best_of_grid": True, **LOOP}
    columns = [column.id for column in table("map-table2").columns if column.id != "avg"]
    single = reproduce("map-table2", columns=columns, **asked).numbers
    done = reproduce("map-fig9", **asked)
    points = {one.column: one for one in done.numbers}
    assert points["map-table2"].value == pytest.approx(fmean(one.value for one in single))
    assert points["map-table1"].rule == points["map-table2"].rule == "oracle"
    assert any("each scene's own best" in note for note in done.notes)
    with pytest.raises(
        UserError, match="map-fig10 reports no best of several settings, only map-fig9, map-table1"
    ):
        reproduce("map-fig10", **asked)


def test_spread_over_clients_is_that_within_a_seed():
    """Clients of two seeds are not the same, so that their means over seeds belong to nobody."""
    found = table("persfl-table2")
    cell = next(one for one in found.cells if one.row == "SD")
    ask = ReproductionRequest(seeds=(0, 1))
    values = {0: pd.Series([0.1, 0.9]), 1: pd.Series([0.9, 0.1])}
    outcomes = {task.key: RunOutcome(values[task.key[-1]]) for task in cell_requests(cell, ask)}
    assert cell_number(cell, ask, outcomes).value == pytest.approx(100 * stdev([0.1, 0.9]))
