"""An experiment small enough to run in a blink."""

from __future__ import annotations

import pytest
import torch

from idiolect.experiments import Experiment

torch.set_num_threads(1)


@pytest.fixture
def tiny() -> Experiment:
    return Experiment(
        dataset="synthetic(n_clients=4, samples_per_client=20, n_features=8, n_classes=3)",
        partition="by_id",
        clients=4,
        model="mlpnet(hidden=8)",
        rounds=2,
        participation_rate=1.0,
        local_epochs=1,
        batch_size=8,
        valid=0.2,
        test=0.2,
    )
