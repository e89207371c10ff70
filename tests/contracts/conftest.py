"""Every method in turn; one thread, as the nets are too small to gain from more; the tiny dataset made known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from idiolect.models import Net, from_module, register_model
from idiolect.models.registered_models import REGISTERED

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


@pytest.fixture
def dropping() -> Iterator[None]:
    """Makes a small network with dropout known, and one with a layer that is not trained."""

    def build(*, in_channels: int, image_size: tuple[int, int], n_classes: int) -> Net:
        inputs = 4 * (image_size[0] - 4) * (image_size[1] - 4)
        body = nn.Sequential(
            nn.Conv2d(in_channels, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(inputs, 8), nn.Dropout(0.5)
        )
        return from_module(body, nn.Linear(8, n_classes))

    def frozen(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        first = nn.Conv2d(input_shape[0], 4, 5).requires_grad_(False)
        inputs = 4 * (input_shape[1] - 4) * (input_shape[2] - 4)
        return nn.Sequential(first, nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(inputs, outputs))

    register_model("dropping", build)
    register_model("frozen", frozen)
    yield
    del REGISTERED["dropping"], REGISTERED["frozen"]
