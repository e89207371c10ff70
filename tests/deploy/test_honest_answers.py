"""What honest sites answer is within schema and bounds, with every method, task and setting that changes an answer."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.create_deployment import DeploymentOptions
from idiolect.methods.catalogue import METHODS

from .conftest import Deploy
from .played import play

pytestmark = pytest.mark.usefixtures("without_pauses")

PATIENT = DeploymentOptions(plain=True, wait=5, grace=20, deadline=60, min_sites=2)
ON_PUBLIC_DATA = "feddf"  # trains in tests/deploy/test_parity.py


def assert_nobody_is_left_out(found: dict[str, Any]) -> None:
    assert found["status"] == "finished", found["message"]
    assert not [event for event in found["events"] if "left out" in event or "refused" in event]


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(set(METHODS) - {ON_PUBLIC_DATA}))
@pytest.mark.parametrize("valid", [0.0, 0.2])
def test_answers_of_every_method_are_taken(deploy: Deploy, method: str, valid: float) -> None:
    if METHODS[method].make().needs_validation and not valid:
        pytest.skip("it cannot run without validation data, and says so")
    data = "synthetic(n_clients=4, samples_per_client=40, n_features=8, n_classes=3)"
    settings = {
        "dataset": data,
        "clients": 4,
        "newcomers": 1,
        "valid": valid,
        "rounds": 2,
        "evaluate_every": 1,
    }
    found = play(deploy(PATIENT, method=method, **settings))
    assert_nobody_is_left_out(found)
    assert any("site-3 has joined" in event for event in found["events"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"weighting": "samples"},
        {"metrics": "auroc", "score_valid": True, "valid": 0.2},
        {"calibration": "per_batch"},
        {"precision": "float32", "observe": "always"},
        {"learning_rate": 1e-9},
    ],
)
def test_answers_under_every_setting_are_taken(deploy: Deploy, settings: dict[str, Any]) -> None:
    assert_nobody_is_left_out(play(deploy(PATIENT, method="map", **settings)))
