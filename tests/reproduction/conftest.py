"""Runs in this process compute with one thread; every scenario can stand for an experiment that runs in a blink."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from idiolect.reproduction import request
from idiolect.reproduction.scenarios import find_scenario

torch.set_num_threads(1)

SMALL = {
    "dataset": "synthetic(n_clients=4, samples_per_client=20, n_features=8, n_classes=3)",
    **{"partition": "by_id", "clients": 4, "model": "mlpnet(hidden=8)", "rounds": 2, "local_epochs": 1},
    **{"participation_rate": 1.0, "batch_size": 8, "test": 0.2, "evaluate_every": 1, "public": 0},
    **{"initialisation": "default", "augmentation": "none"},
}


@pytest.fixture(scope="module")
def tiny_scenes():
    """Every scenario stands for the tiny experiment in its own learning rate; methods and presets stay."""

    def known(name: str):
        found = find_scenario(name)

        def experiment(method: str, preset: str):
            asked = replace(found.experiment(method, preset), **SMALL)
            return replace(asked, learning_rate=1e30) if method.startswith("fedrs") else asked

        return SimpleNamespace(name=name, experiment=experiment, warning_of=found.warning_of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request, "find_scenario", known)
        yield
