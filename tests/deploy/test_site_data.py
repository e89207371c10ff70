"""The rows of a site, and of the server, pass the same checks as data of a user's own anywhere else."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="deployment needs the extra flower")

from idiolect.deploy.configuration import Deployment, read_plan, read_site
from idiolect.deploy.create_deployment import DeploymentOptions, create_deployment
from idiolect.deploy.site_data import DATA, server_federation, site_federation
from idiolect.errors import UserError

from .conftest import EXPERIMENT


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    folder = tmp_path_factory.mktemp("site-data") / "deployment"
    return create_deployment(EXPERIMENT, folder, DeploymentOptions(plain=True))


class Site:
    """A site's file of rows, which can be written anew, and what the site reads from it."""

    def __init__(self, deployment: Deployment) -> None:
        self.config = read_site(deployment.site_folder(deployment.sites[0]))
        self.plan = read_plan(self.config.folder)
        self.path = self.config.folder / self.config.data / DATA
        with np.load(self.path) as file:
            self.arrays = dict(file)

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        found = site_federation(self.plan, self.config)
        return found.x, found.y

    def read_with(self, **arrays: Any) -> tuple[np.ndarray, np.ndarray]:
        np.savez(self.path, **{key: value for key, value in arrays.items() if value is not None})
        return self.read()


@pytest.fixture
def site(deployment: Deployment) -> Site:
    found = Site(deployment)
    whole = found.path.read_bytes()
    yield found
    found.path.write_bytes(whole)


def test_damaged_rows_are_refused_or_read_as_they_were(site: Site) -> None:
    whole, random = site.path.read_bytes(), Random(1)
    x, y = site.read()
    sentences = []
    for _ in range(300):
        damaged = bytearray(whole)
        match random.randrange(3):
            case 0:
                damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
            case 1:
                del damaged[random.randrange(len(damaged)) :]
            case 2:
                start = random.randrange(len(damaged))
                damaged[start : start + random.randrange(1, 40)] = random.randbytes(random.randrange(40))
        site.path.write_bytes(damaged)
        try:
            found = site.read()
        except UserError as error:
            sentences.append(str(error))
        else:
            assert np.array_equal(found[0], x) and np.array_equal(found[1], y)
    assert len(sentences) > 200
    assert all(str(site.path) in sentence and "\n" not in sentence for sentence in sentences)


CHANGES: dict[str, tuple[Any, str]] = {
    "fraction": (lambda x, y: {"y": y + 0.7}, "row 0: the label .* is no class for classification"),
    "unknown class": (
        lambda x, y: {"y": np.where(y == y[0], 3, y)},
        "unknown label '3'; the classes are 0, 1, 2",
    ),
    "negative class": (lambda x, y: {"y": -1 - y}, "unknown label '-"),
    "missing label": (lambda x, y: {"y": np.where(y == y[0], np.nan, y)}, "the label is missing"),
    "words": (lambda x, y: {"y": y.astype(str) + "a"}, r"unknown label '\da'"),
    "objects": (lambda x, y: {"y": y.astype(object)}, "holds Python objects, which are not loaded"),
    "missing pixel": (
        lambda x, y: {"x": np.where(x == x[3, 0, 0, 2], np.nan, x)},
        "row 3: place .0, 0, 2. is missing",
    ),
    "infinite": (
        lambda x, y: {"x": np.where(x == x[3, 0, 0, 2], np.inf, x)},
        "row 3: place .0, 0, 2. is infinite",
    ),
    "wide": (
        lambda x, y: {"x": x[..., 1:]},
        r"rows \[1, 1, 7\] of float32; this .* reads rows of \[1, 1, 8\]",
    ),
    "bytes": (lambda x, y: {"x": x.astype(np.uint8)}, "this experiment reads rows of .* of float32"),
    "fewer labels": (lambda x, y: {"y": y[1:]}, "has 40 rows but 39 values of label"),
    "empty": (lambda x, y: {"x": x[:0], "y": y[:0]}, "has no rows"),
    "no labels": (lambda x, y: {"y": None}, "must hold the arrays x, y and no others; it has x"),
    "a split": (lambda x, y: {"split": y}, "must hold the arrays x, y and no others; it has x, y, split"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_rows_that_are_none_of_the_experiment_are_refused(change: str, site: Site) -> None:
    made, sentence = CHANGES[change]
    with pytest.raises(UserError, match=sentence):
        site.read_with(**{**site.arrays, **made(**site.arrays)})


def test_whole_labels_written_as_fractions_and_wide_floats_are_read(site: Site) -> None:
    x, y = site.read()
    found = site.read_with(x=site.arrays["x"].astype(np.float64), y=site.arrays["y"].astype(np.float32))
    assert np.array_equal(found[0], x) and np.array_equal(found[1], y)


def test_rows_of_the_server_are_checked_too(deployment: Deployment, tmp_path: Path) -> None:
    plan = read_plan(deployment.server)
    rows = np.zeros((4, 1, 1, 8), np.float32)
    arrays = {"test_x": rows, "test_y": np.array([0, 1, 2, 0]), "public_x": rows[:0]}
    np.savez(tmp_path / DATA, **arrays)
    assert server_federation(plan, tmp_path).server_y.tolist() == [0, 1, 2, 0]
    for change, sentence in (
        ({"test_y": np.array([0, 1, 2, 1.7])}, "row 3: the label 1.7 is no class"),
        ({"test_x": np.full_like(rows, np.nan)}, "is missing"),
        ({"public_x": np.full_like(rows, np.inf)}, "public_x, row 0: .* is infinite"),
        ({"public_x": rows[..., :3]}, r"rows \[1, 1, 3\]"),
    ):
        np.savez(tmp_path / DATA, **{**arrays, **change})
        with pytest.raises(UserError, match=sentence):
            server_federation(plan, tmp_path)
