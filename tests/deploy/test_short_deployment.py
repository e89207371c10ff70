"""A real deployment, short: three sites, TLS, registered keys, two rounds, and a site killed in the middle of one."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.create_deployment import DeploymentOptions
from idiolect.deploy.processes import deployment_processes
from idiolect.deploy.site import Site
from idiolect.deploy.status import status

from .conftest import Deploy
from .played import assert_parity
from .real import PATIENCE, idiolect, is_at, kill, logs_of, site_says, start_run, up, wait_for

LONG_ENOUGH = 150  # local epochs: half a second or more of training, to be killed in


@pytest.mark.slow
def test_site_killed_in_a_round_goes_on_from_its_own_model(deploy: Deploy) -> None:
    deployment = deploy(
        DeploymentOptions(wait=PATIENCE, grace=PATIENCE, deadline=PATIENCE, min_sites=3),
        method="map",
        rounds=2,
        local_epochs=LONG_ENOUGH,
    )
    up(deployment)
    with start_run(deployment) as run:
        wait_for(is_at(deployment, 1), "the first round")
        before = status(deployment)["sites"]["site-1"]["digest"]
        wait_for(site_says(deployment, 1, "train, round 2"), "the second round at site-1")
        kill(deployment, "site-1")
        up(deployment)
        out, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, err
    assert "round 2/2" in err and "finished, round 2 of 2" in out
    assert any("site-1 asked again" in event for event in status(deployment)["events"])
    store = Site.open(deployment.site_folder(deployment.sites[1])).store
    assert [version.round for version in store.versions()] == [0, 1]
    assert status(deployment)["sites"]["site-1"]["base_digest"] == before
    assert_parity(deployment)
    secrets = [path.read_text().split("\n")[2] for path in deployment.folder.rglob("key")]
    for log in logs_of(deployment.folder):
        text = log.read_text(errors="replace")
        assert not any(secret in text for secret in secrets)
        assert "PRIVATE KEY" not in text
    assert len(deployment_processes(deployment.folder)) >= 8
    assert idiolect("deploy", "down", deployment.folder).returncode == 0
    assert deployment_processes(deployment.folder) == {}
