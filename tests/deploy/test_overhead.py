"""What our loop costs beside Flower's own: no training, the same payload, the same machine."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.configuration import read_plan
from idiolect.deploy.create_deployment import DeploymentOptions
from idiolect.deploy.progress import read_progress
from idiolect.deploy.server import server_setting

from .baseline import seconds_of_rounds
from .conftest import Deploy
from .real import idiolect, up

ROUNDS = 8
MOST = 1.2


@pytest.mark.slow
def test_round_costs_no_more_than_a_round_of_flowers_own_fedavg(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy(
        DeploymentOptions(plain=True, wait=60, min_sites=3),
        method="fedavg",
        dataset="fashion-mnist-12k",
        partition="iid",
        model="lenet_map",
        local_epochs=0,
        rounds=ROUNDS,
        evaluate_every=ROUNDS,
        precision="float32",
    )
    parameters = server_setting(read_plan(deployment.server), deployment.server).n_parameters
    theirs = seconds_of_rounds(tmp_path / "baseline", parameters, ROUNDS)
    up(deployment)
    done = idiolect("deploy", "run", deployment.folder)
    assert done.returncode == 0, done.stderr
    found = read_progress(deployment.server)
    assert found is not None
    ours = found["seconds"][:-1]  # the last round evaluates every site
    print(f"ours {[round(s, 2) for s in ours]}, Flower's {[round(s, 2) for s in theirs]}")
    assert median(ours) <= MOST * median(theirs)
