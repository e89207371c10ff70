"""A real deployment with secure aggregation: three sites, TLS, two rounds, and a site that is killed."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.create_deployment import DeploymentOptions
from idiolect.deploy.processes import deployment_processes
from idiolect.deploy.status import status
from idiolect.records import NO_CLIENT, read_run

from .conftest import Deploy
from .played import assert_close_to_sums, folder_of, play
from .real import PATIENCE, idiolect, kill, site_says, start_run, up, wait_for


@pytest.mark.slow
def test_site_killed_between_training_and_its_sum_is_in_the_sum(deploy: Deploy) -> None:
    settings = {"method": "map", "rounds": 2}
    deployment = deploy(
        DeploymentOptions(wait=PATIENCE, grace=PATIENCE, deadline=PATIENCE, secure_aggregation=True),
        **settings,
    )
    up(deployment)
    with start_run(deployment) as run:
        wait_for(site_says(deployment, 1, "share, round 2"), "the keys of the second round")
        kill(deployment, "site-1")
        up(deployment)
        out, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, err
    assert "finished, round 2 of 2" in out
    assert any("mean of 3 sites: loss" in event for event in status(deployment)["events"])
    plain = deploy(**settings)
    assert play(plain)["status"] == "finished"
    assert_close_to_sums(deployment, plain)
    rows = read_run(folder_of(deployment)).rows
    assert set(rows[rows.split == "test"].client) == {NO_CLIENT}
    assert idiolect("deploy", "down", deployment.folder).returncode == 0
    assert deployment_processes(deployment.folder) == {}
