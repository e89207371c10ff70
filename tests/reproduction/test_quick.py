"""Quick stand-ins: every scenario's has its shape and can be prepared on the embedded data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idiolect.engines import EngineChoice
from idiolect.experiments import prepare
from idiolect.methods import method
from idiolect.reproduction.papers import figures, tables
from idiolect.reproduction.quick_experiment import quick_experiment
from idiolect.reproduction.request import ReproductionRequest
from idiolect.reproduction.scenarios import find_scenario, scenario, scenarios

RUNNABLE = [found.name for found in scenarios() if not found.cannot]
DISTINCT = {}
for name in RUNNABLE:
    small = quick_experiment(scenario(name))
    DISTINCT.setdefault((small.partition, small.model, small.clients, small.valid, small.public), name)


def test_stand_in_keeps_the_shape_where_that_is_sensible():
    paper, small = (
        scenario("map-fa-lenet", method="map"),
        quick_experiment(scenario("map-fa-lenet", method="map")),
    )
    assert small.dataset == "fashion-mnist-12k" and small.rounds == 4
    for kept in ("method", "partition", "model", "batch_size", "learning_rate", "momentum", "weight_decay"):
        assert getattr(small, kept) == getattr(paper, kept)
    assert quick_experiment(scenario("php-silo")).partition == "label_k(k=1)"
    assert quick_experiment(scenario("php-silo")).participation_rate == 1.0
    assert quick_experiment(scenario("php-femnist")).partition == "dirichlet_client(alpha=0.3)"
    assert quick_experiment(scenario("map-cinic-resnet20")).model == "lenet_bn"
    assert quick_experiment(scenario("map-c10-tfcnn", "official")).clip_norm == 100.0


@pytest.mark.parametrize("name", sorted(DISTINCT.values()))
def test_stand_in_can_be_prepared(name):
    small = quick_experiment(scenario(name))
    setting = prepare(replace(small, clients=small.clients), EngineChoice("loop", "cpu", "as asked"))
    assert 2 <= setting.federation.population <= 10


def test_every_cell_and_line_has_a_readable_stand_in():
    asks = [ReproductionRequest(quick=True, seeds=(3,)), ReproductionRequest(preset="official", quick=True)]
    wanted = {
        (name, cell.method)
        for table in tables()
        for cell in table.cells
        for name in cell.scenarios
        if cell.method
    }
    wanted |= {
        (name, line.method) for figure in figures() for line in figure.lines for name in line.scenarios
    }
    for name, text in sorted(wanted):
        for ask in asks:
            if ask.preset in find_scenario(name).presets:
                experiment, notes = ask.experiment(name, text, 3)
                assert method(experiment.method).parts and experiment.seed == 3
                assert any(note.startswith("quick: ") for note in notes)
