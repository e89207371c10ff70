"""The settings that the papers' authors tried, typed in by hand."""

from __future__ import annotations

import pytest

from idiolect.errors import UserError
from idiolect.experiments.sweep.parameter_grids import grid, grids
from idiolect.methods import method
from idiolect.option_parsing import write_call

MAP = {
    "fedprox": [1e-4, 1e-3, 1e-2],
    "fedmmd": [1e-3, 1e-2, 1e-1],
    "scaffold": [0.5, 0.75, 0.9],
    "feddf": [(1e-2, 200), (1e-3, 300), (1e-4, 500)],
    "fedavgm": [(1.0, 0.9), (0.1, 0.9), (0.05, 0.9)],
    "fednova": [(0.9, 1e-4), (0.5, 1e-3), (0.3, 1e-2)],
    "fedaws": [(0.9, 20, 1.0), (0.8, 30, 0.1), (0.5, 50, 0.01)],
    "moon": [1e-3, 1e-2, 1e-1],
    "feddyn": [0.1, 0.01, 0.001],
    "feddml": [(1.0, 0.25, 0.75), (4.0, 0.5, 0.5), (8.0, 0.75, 0.25)],
    "fedproto": [(0.1, "sum"), (0.01, "sum"), (0.001, "sum")],
    "ditto": [0.1, 0.01, 0.001],
    "fedrod": [1.0, 0.5, 0.25],
    "fedrs": [0.9, 0.5, 0.1],
    "fedphp": [("kd", 0.1), ("mmd", 0.1), ("mmd", 0.01)],
    "dittors": [(0.1, 0.1), (0.9, 0.01), (0.5, 0.001)],
    "scars": [(0.1, 0.5), (0.9, 0.75), (0.5, 0.9)],
    "map": [("kd", 0.1, 0.5), ("kd", 0.01, 0.9), ("mmd", 0.01, 0.5)],
    "scamap": [("kd", 0.1, 0.5, 0.5), ("kd", 0.01, 0.9, 0.9), ("mmd", 0.01, 0.5, 0.5)],
}


@pytest.mark.parametrize("name", MAP)
def test_triples_of_map(name):
    found = [tuple(setting.values()) for setting in grid("map").methods[name]]
    assert found == [setting if isinstance(setting, tuple) else (setting,) for setting in MAP[name]]


def test_pfedme_and_perfedavg_of_map():
    tried = grid("map").methods["pfedme"]
    assert [(t["weight"], t["inner_steps"], t["beta"]) for t in tried] == [
        (0.1, 5, 1),
        (0.01, 10, 1),
        (0.001, 15, 1),
    ]
    assert [t["outer_rate"] * t["weight"] for t in tried] == pytest.approx([0.9, 0.75, 0.5])
    assert [t["outer_rate"] for t in grid("map").methods["perfedavg_fo"]] == [0.1, 0.05, 0.01]


def test_products_of_the_studies():
    sizes = {name: {m: len(tried) for m, tried in found.methods.items()} for name, found in grids().items()}
    del sizes["map"]
    assert sizes == {
        "map-study": {"map": 20},
        "fedphp": {"fedphp": 16},
        "fedphp-code": {"fedphp": 3},
        "persfl": {"persfl": 15},
        "superfed": {"superfed_mm": 16, "superfed_lm": 16},
        "superfed-phase": {"superfed_mm": 10, "superfed_lm": 10},
        "fedper": {"fedper": 4},
    }


def test_every_setting_can_be_read():
    for found in grids().values():
        for name, tried in found.methods.items():
            assert all(method(write_call(name, options)).parts for options in tried)


def test_unknown_grid_names_the_near_one():
    with pytest.raises(UserError, match="unknown grid 'fedph'; did you mean fedphp"):
        grid("fedph")
