"""What is trained at sites is what a simulation trains."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.create_deployment import DeploymentOptions
from idiolect.methods import register
from idiolect.methods.catalogue import METHODS as KNOWN

from ..told_apart import told_apart
from .conftest import PERSFL, Deploy
from .played import assert_parity, play

PATIENT = DeploymentOptions(plain=True, wait=0.5, grace=20, deadline=600, min_sites=1)
METHODS = ["fedper", "map", "scamap", PERSFL, "superfed_mm", "ditto", "fedbabu", "fedaws", "fedfomo"]
METHODS += [pytest.param(method, marks=pytest.mark.slow) for method in ("fedpac", "ifca", "apple")]
ROBUST = ["fedavg + median", "fedper + trimmed_mean(share=0.34)", "map + krum(share=0.34)"]
ROBUST += [
    "ditto + multi_krum(share=0.34)",
    "scaffold + geometric_median",
    f"{PERSFL} + norm_bound(bound=0.8)",
]
METHODS += [pytest.param(method, marks=pytest.mark.slow) for method in ROBUST]


@pytest.mark.parametrize("method", METHODS)
def test_sites_train_as_clients_of_a_simulation(deploy: Deploy, method: str) -> None:
    deployment = deploy(method=method, participation_rate=0.67)
    assert play(deployment)["status"] == "finished"
    assert_parity(deployment)


def test_sites_report_what_a_method_has_before_its_second_phase(deploy: Deploy) -> None:
    """SuPerFed does not mix in the first two of five rounds, of which the second is scored."""
    deployment = deploy(method="superfed_mm", rounds=5)
    assert play(deployment)["status"] == "finished"
    assert_parity(deployment)


@pytest.mark.slow
@pytest.mark.parametrize("buffers", ["average", "private"])
def test_running_statistics_travel_as_in_a_simulation(deploy: Deploy, buffers: str) -> None:
    settings = {"dataset": "fashion-mnist-12k", "partition": "iid", "model": "lenet_bn", "rounds": 1}
    deployment = deploy(PATIENT, method="fedavg", weighting="samples", buffers=buffers, **settings)
    assert play(deployment)["status"] == "finished"
    assert_parity(deployment)


def test_what_is_sent_to_single_sites_is_as_in_a_simulation(deploy: Deploy) -> None:
    register("told_apart", told_apart)
    try:
        settings = {"newcomers": 1, "method": "told_apart + fine_tune", "participation_rate": 0.67}
        deployment = deploy(PATIENT, **settings)
        assert play(deployment)["status"] == "finished"
        assert_parity(deployment)
    finally:
        del KNOWN["told_apart"]


def test_newcomers_join_as_in_a_simulation(deploy: Deploy) -> None:
    deployment = deploy(PATIENT, method="superfed_mm", newcomers=1)
    assert play(deployment)["status"] == "finished"
    assert_parity(deployment)


@pytest.mark.slow
def test_server_trains_on_public_data_as_in_a_simulation(deploy: Deploy) -> None:
    data = "fashion-mnist-12k"
    deployment = deploy(
        PATIENT, method="feddf", dataset=data, partition="iid", model="lenet_map", public=50, rounds=1
    )
    assert play(deployment)["status"] == "finished"
    assert_parity(deployment)


@pytest.mark.slow
def test_sites_follow_optimiser_and_schedules_as_in_a_simulation(deploy: Deploy) -> None:
    rates = {"learning_rate": 0.01, "schedule": "cosine", "local_schedule": "linear(final=0.1)"}
    deployment = deploy(PATIENT, method="map", optimiser="adam(beta_two=0.9)", **rates)
    assert play(deployment)["status"] == "finished"
    assert_parity(deployment)
