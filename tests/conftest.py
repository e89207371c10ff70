"""Fixtures of several rooms: an experiment that runs in a blink, and Ray on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from idiolect.data.catalogue import REGISTERED
from idiolect.experiments import Experiment


@pytest.fixture(scope="module", autouse=True)
def _registered_datasets() -> Iterator[None]:
    """Datasets that a module registers are gone after it."""
    before = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


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


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """Room for three workers and a small object store; engines use it and leave it as it is."""
    if find_spec("ray") is None:
        pytest.skip("the extra ray is not installed: pip install 'idiolect[ray]'")
    from idiolect.engines.ray.connection import connect  # noqa: PLC0415 - needs Ray

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        disconnect = connect(None, workers=3, object_store_memory=100 << 20)
    yield
    disconnect()
