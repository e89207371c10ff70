"""A deployment whose numbers are no longer finite: the sentence names the method, the site's client and the round."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.create_deployment import DeploymentOptions

from .conftest import Deploy
from .played import folder_of, play


def test_deployment_stops_and_says_which_method_diverged_where(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idiolect.deploy.site_requests.POLL_SECONDS", 0.0)
    options = DeploymentOptions(plain=True, wait=0.3, grace=0.2, min_sites=2)
    deployment = deploy(options, method="map(private_lr_scale=1e200)", local_epochs=6, rounds=2)
    progress = play(deployment)
    assert progress["status"] == "stopped"
    for site in deployment.sites:
        told = f"MAP: client {site.client} got parameters that are not finite in round 1; lower learning_rate"
        assert told in progress["message"]
    assert not folder_of(deployment).exists()
