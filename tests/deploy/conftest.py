"""A deployment small enough to train in a blink, in this process or in real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from idiolect.experiments import Experiment

if TYPE_CHECKING:
    from idiolect.deploy.configuration import Deployment
    from idiolect.deploy.create_deployment import DeploymentOptions

torch.set_num_threads(1)

EXPERIMENT = Experiment(
    method="fedper",
    dataset="synthetic(n_clients=3, samples_per_client=40, n_features=8, n_classes=3)",
    partition="by_id",
    clients=3,
    model="mlpnet(hidden=8)",
    rounds=3,
    participation_rate=1.0,
    local_epochs=1,
    batch_size=8,
    evaluate_every=2,
    precision="float64",
)
PERSFL = "persfl(lambdas=(0.0, 0.5), temperatures=(1.0, 5.0), epochs=1)"

Deploy = Callable[..., "Deployment"]


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a server and sites in this process wait neither for each other nor for the disk."""
    monkeypatch.setattr("idiolect.deploy.site_requests.POLL_SECONDS", 0.0)
    monkeypatch.setattr("os.fsync", lambda handle: None)  # the disk is slow when others work


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    """Writes a deployment; whatever it started is ended, and must have ended, when the test is over."""
    from idiolect.deploy.create_deployment import DeploymentOptions, create_deployment  # noqa: PLC0415
    from idiolect.deploy.processes import deployment_processes, free_port, stop_processes  # noqa: PLC0415

    made: list[Deployment] = []

    def write(options: DeploymentOptions | None = None, **settings: Any) -> Deployment:
        address = f"127.0.0.1:{free_port()}"
        options = options or DeploymentOptions(plain=True, wait=0.5, grace=0.2, deadline=20, min_sites=1)
        folder = tmp_path / f"deployment-{len(made)}"
        made.append(
            create_deployment(replace(EXPERIMENT, **settings), folder, replace(options, address=address))
        )
        return made[-1]

    yield write
    for deployment in made:
        stop_processes(deployment.folder)
        assert deployment_processes(deployment.folder) == {}
