"""A deployment played through in this process, and the simulation it must equal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from idiolect.deploy.configuration import Deployment, read_plan
from idiolect.deploy.progress import read_progress
from idiolect.deploy.server import run_folder, run_server
from idiolect.deploy.site import Site
from idiolect.deploy.tensor_names import flatten
from idiolect.engines import EngineChoice, LoopEngine
from idiolect.experiments import Experiment, Simulation, prepare
from idiolect.records import find_checkpoint, finished_folder, partial_folder, read_run

from .fake_grid import FakeGrid


def grid_of(deployment: Deployment) -> FakeGrid:
    return FakeGrid({100 + m.client: Site.open(deployment.site_folder(m)) for m in deployment.sites})


def play(deployment: Deployment, grid: FakeGrid | None = None) -> dict[str, Any]:
    """Runs the server's loop to its end, or to its stop; gives the progress."""
    run_server(grid or grid_of(deployment), deployment.folder)
    found = read_progress(deployment.server)
    assert found is not None
    return found


def folder_of(deployment: Deployment, done: bool = True) -> Path:
    out, name = run_folder(deployment, read_plan(deployment.server))
    return finished_folder(out, name) if done else partial_folder(out, name)


def server_of(deployment: Deployment, done: bool = True) -> dict[str, Tensor]:
    found = find_checkpoint(folder_of(deployment, done))
    assert found is not None
    return flatten(found[1]["server"])


def simulated(experiment: Experiment) -> Simulation:
    setting = prepare(experiment, EngineChoice("loop", "cpu", "as asked"))
    simulation = Simulation.start(setting, LoopEngine(setting.work))
    for _ in range(experiment.rounds):
        simulation.advance()
    simulation.finish()
    return simulation


def assert_parity(deployment: Deployment) -> None:
    """Equal server states (float64, relative 1e-9), every row of every client, its costs and its counts the same.

    Only the server does not know how many samples lie behind a value.
    """
    simulation = simulated(read_plan(deployment.server).experiment)
    assert_close(server_of(deployment), flatten(simulation.server))
    keys = [name for name in simulation.rows.table().column_names if name not in ("value", "samples")]
    expected = simulation.rows.table().to_pandas().set_index(keys).sort_index()[["value"]]
    record = read_run(folder_of(deployment))
    found = record.rows[[*keys, "value"]]
    assert len(expected) > 0
    pd.testing.assert_frame_equal(found.set_index(keys).sort_index(), expected, rtol=1e-9, check_exact=False)
    accuracy = found[found.metric == "accuracy"].set_index(keys).sort_index()
    exact = expected[expected.index.get_level_values("metric") == "accuracy"]
    assert (accuracy.value.to_numpy() == exact.value.to_numpy()).all()
    for name, table in {**simulation.counts.tables(), "costs": simulation.costs.table()}.items():
        names = table.column_names
        found, expected = (
            frame[names].sort_values(names[:8]).reset_index(drop=True)
            for frame in (getattr(record, name), table.to_pandas())
        )
        assert len(expected) > 0
        pd.testing.assert_frame_equal(found, expected, rtol=1e-9, check_exact=False, check_dtype=False)


def assert_close(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-12)


def assert_close_to_sums(summed: Deployment, plain: Deployment) -> None:
    """The server states of a deployment with secure aggregation and of one without it."""
    found, expected = server_of(summed), server_of(plain)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-10)
