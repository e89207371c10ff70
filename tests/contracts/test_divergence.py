"""Numbers that are no longer finite stop a run; the message names client and round, the last checkpoint stays good."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import idiolect
from idiolect.errors import UserError
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting, prepare
from idiolect.records import load_checkpoint
from idiolect.records.tables import FRONT_SCHEMA

from .altered import with_data
from .sameness import assert_exact, copied, numbers, states
from .tiny import experiment_of, finished_run, make_engine, setting_of

RUNNING = import_module("idiolect.experiments.run")  # the package shows the function of that name
BROKEN = 4  # takes part in round 2 for the first time


def broken(setting: Setting) -> Setting:
    """One client's training rows are not numbers."""
    x = setting.federation.x.copy()
    x[setting.federation.clients[BROKEN].train] = np.nan
    return with_data(setting, x, setting.federation.y)


def test_broken_update_names_client_and_round(method: str) -> None:
    setting = broken(setting_of(method))
    simulation = Simulation.start(setting, make_engine("loop", setting))
    simulation.advance()
    before = copied(states(simulation))
    with pytest.raises(UserError, match=rf"client {BROKEN} .*round 2"):
        simulation.advance()
    assert_exact(copied(states(simulation)), before)


@pytest.mark.parametrize("engine", ["loop", "cohort", "pool", pytest.param("ray", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["fedavg", "fedper", "map", "local"])
def test_run_stops_with_a_checkpoint_to_go_on_from(
    name: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if engine == "ray":
        request.getfixturevalue("ray_session")
    options = {"out": tmp_path, "engine": engine, "checkpoint_every": 1}
    with monkeypatch.context() as patch:
        patch.setattr(RUNNING, "prepare", lambda *arguments: broken(prepare(*arguments)))
        with pytest.raises(UserError, match=rf"client {BROKEN} .*round 2"):
            idiolect.run(experiment_of(name), **options)
    (folder,) = tmp_path.iterdir()
    found = load_checkpoint(folder)
    assert found is not None and found[0] == 1
    resumed = idiolect.run(experiment_of(name), resume=True, **options)
    rows = resumed.rows.drop(columns=FRONT_SCHEMA.names).to_dict("records")
    if engine == "loop":
        assert rows == numbers(finished_run(name))["rows"]
    assert len(rows) == len(numbers(finished_run(name))["rows"])


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("map(private_lr_scale=1e200)", "round 1"),  # the upload is sound, what follows it is not
        ("fedavg_lu(epochs=5, lr_scale=1e200)", "client"),  # so are all rounds, the stage at the end is not
    ],
)
def test_broken_private_state_stops_the_run(name: str, where: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=where):
        idiolect.run(experiment_of(name, local_epochs=6), out=tmp_path, engine="loop")
