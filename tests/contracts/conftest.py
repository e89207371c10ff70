"""Every method in turn; one thread, as the nets are too small to gain from more; the tiny dataset made known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from .cases import METHODS, VARIANTS, spelt
from .tiny import tiny_known

SLOW = {name: [pytest.mark.slow] for name in VARIANTS}


@pytest.fixture(scope="session", params=[pytest.param(m, marks=SLOW.get(m, [])) for m in METHODS])
def method(request: pytest.FixtureRequest) -> str:
    """A method under contract, variants in the long suite; tests of one method follow each other and share its runs."""
    return spelt(request.param)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def tiny_dataset() -> Iterator[None]:
    with tiny_known():
        yield
