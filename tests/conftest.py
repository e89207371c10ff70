"""Ray on this machine, for the tests that ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """Room for three workers and a small object store; engines use it and leave it as it is."""
    if find_spec("ray") is None:
        pytest.skip("the extra ray is not installed: pip install 'idiolect[ray]'")
    from idiolect.engines.ray.engine import connect  # noqa: PLC0415 - needs Ray

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        disconnect = connect(None, workers=3, object_store_memory=100 << 20)
    yield
    disconnect()
