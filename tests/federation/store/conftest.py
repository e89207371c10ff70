"""Private trees with everything that a leaf can be, and stores of every kind to put them in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from idiolect.federation.store import Store
from idiolect.federation.store.disk import DiskStorage
from idiolect.federation.store.memory import MemoryStorage
from idiolect.federation.store.row_format import RowFormat
from idiolect.federation.store.row_generations import RowGenerations

POPULATION = 40
KINDS = ("host", "disk 0", "disk 5000", "disk 1000000")  # with bytes of cache: none, a few rows, all rows

torch.set_num_threads(1)


def tree_of(client: int, version: int = 0) -> dict[str, Any]:
    """Differs in every leaf that has a number, for every client and version."""
    drawn = torch.Generator().manual_seed(1000 * version + client)

    def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=drawn, dtype=torch.float64).to(dtype)

    return {
        "buffers": {},
        "slots": {
            "head": {"weight": normal(5, 7), "bias": normal(3)},
            "scalar": normal(dtype=torch.float64),
            "count": torch.tensor(client + 100 * version),
            "small": {
                "half": normal(5, dtype=torch.bfloat16),
                "flags": normal(3) > 0,
                "none": torch.empty(0, 4),
            },
            "bytes": torch.randint(0, 255, (3,), generator=drawn, dtype=torch.uint8),
            "several": [normal(2, 1), (normal(1),)],
            "empty": {},
        },
    }


def ended_tree(client: int) -> dict[str, Any]:
    """What the end of a run makes of it: another shape."""
    first = tree_of(client)
    return {**first, "slots": {**first["slots"], "student": {"w": torch.full((40,), float(client))}}}


def assert_same(found: Any, expected: Any) -> None:
    """Bit for bit, with the same shapes, types and places."""
    ours, our_shape = torch.utils._pytree.tree_flatten(found)
    theirs, their_shape = torch.utils._pytree.tree_flatten(expected)
    assert our_shape == their_shape
    for one, other in zip(ours, theirs, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert torch.equal(one, other)


Make = Callable[..., Store]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A store of a kind on the test's folder; ``create`` is ``tree_of`` unless given."""

    def made(kind: str, create: Callable[[int], Any] = tree_of) -> Store:
        form = RowFormat([tree_of(0), ended_tree(0)])
        file = RowGenerations(tmp_path, form, POPULATION)
        word, _, cache = kind.partition(" ")
        storage = (
            MemoryStorage(form, POPULATION, "cpu", file)
            if word == "host"
            else DiskStorage(form, POPULATION, file, int(cache))
        )
        return Store(create, storage, form)

    return made


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(make: Make, kind: str) -> Store:
    return make(kind)
