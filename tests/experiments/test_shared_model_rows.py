"""The shared model is scored on the server's test set only where the server trains a whole model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from idiolect import methods
from idiolect.cli import TINY
from idiolect.core import Method, chain
from idiolect.engines import EngineChoice, choose_engine
from idiolect.experiments import Experiment, Simulation, prepare
from idiolect.methods.catalogue import METHODS, Entry
from idiolect.parts import average, control_variates, private_layers, proximal

torch.set_num_threads(1)
LOOP = EngineChoice("loop", "cpu", "as asked")
NO_SHARED_MODEL = {
    "apple",
    "local",
    "fedper",
    "fedrep",
    "fedbabu",
    "fedas",
    "gpfl",
    "lg_fedavg",
    "fedproto",
    "fedfomo",
    "fedpac",
    "fedgh",
    "feddistill",
}


def after_a_round(experiment: Experiment) -> tuple[Simulation, bool]:
    """Returns a simulation after one evaluated round, and whether any shared tensor differs from the start."""
    setting = prepare(replace(experiment, rounds=1, evaluate_every=1), LOOP)
    simulation = Simulation.start(setting, choose_engine(LOOP, setting.work, print))
    first = {name: value.clone() for name, value in simulation.server["params"].items()}
    simulation.advance()
    after = simulation.server["params"]
    return simulation, any(not torch.equal(first[name], after[name]) for name in first)


def server_rows(simulation: Simulation) -> int:
    return simulation.rows.take()["split"].to_pylist().count("server")


@pytest.mark.parametrize("name", methods.names())
def test_server_rows_are_of_a_whole_model_that_the_round_changed(name):
    simulation, changed = after_a_round(replace(TINY, method=name))
    has_rows = server_rows(simulation) > 0
    assert has_rows == ("global" in simulation.latest)
    assert has_rows == (name not in NO_SHARED_MODEL)
    assert changed or not has_rows, "an untouched start is scored"


UNTOUCHED: dict[str, Method] = {
    "parts-without-a-server": chain(proximal(0.1), name="mine"),
    "merge-of-a-slot-alone": chain(control_variates(), name="mine"),
    "all-private": chain(average(), private_layers(count=None), name="mine"),
}


@pytest.mark.parametrize("case", UNTOUCHED)
def test_untouched_start_is_not_scored(case, monkeypatch):
    monkeypatch.setitem(METHODS, "mine", Entry("Mine", lambda: UNTOUCHED[case]))
    simulation, changed = after_a_round(replace(TINY, method="mine"))
    assert not changed
    assert server_rows(simulation) == 0 and "global" not in simulation.latest
