from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from idiolect.data import load
from idiolect.data.embedded import ARCHIVE, CHECKSUMS, load_embedded
from idiolect.errors import UserError

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_embedded.py"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the embedded folder that a test may spoil."""
    with as_file(files("idiolect.data").joinpath("embedded")) as folder:
        return Path(shutil.copytree(folder, tmp_path / "embedded"))


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_embedded", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_embedded_is_balanced_and_of_the_promised_size() -> None:
    dataset = load()
    assert dataset.name == "fashion-mnist-12k"
    assert dataset.train_x.shape == (10_000, 1, 28, 28)
    assert np.bincount(dataset.train_y).tolist() == [1_000] * 10
    assert np.bincount(dataset.test_y).tolist() == [200] * 10
    assert dataset.train_y[:5].tolist() == [9, 0, 0, 3, 0]  # as the original begins
    assert dataset.manifest["licence"] == "MIT"


def test_embedded_folder_is_small_and_carries_its_licence(copied: Path) -> None:
    assert sum(path.stat().st_size for path in copied.iterdir()) <= 7_000_000
    assert "2017 Zalando SE" in (copied / "LICENSE").read_text()


@pytest.mark.parametrize("position", [0, 1_000_000, -1])
def test_embedded_with_one_byte_changed_is_refused(copied: Path, position: int) -> None:
    raw = bytearray((copied / ARCHIVE).read_bytes())
    raw[position] ^= 1
    (copied / ARCHIVE).write_bytes(raw)
    with pytest.raises(UserError, match=r"12k\.npz is damaged: expected sha256 .* reinstall idiolect"):
        load_embedded(copied)


def test_embedded_without_its_files_is_refused(copied: Path) -> None:
    (copied / CHECKSUMS).write_text("")
    with pytest.raises(UserError, match=r"cannot be read .* reinstall"):
        load_embedded(copied)
    (copied / ARCHIVE).unlink()
    with pytest.raises(UserError, match=r"cannot be read .* reinstall"):
        load_embedded(copied)


def test_make_embedded_takes_the_first_rows_of_each_class_and_is_deterministic(
    tmp_path: Path, script: ModuleType, write_mnist: Callable[..., Path]
) -> None:
    write_mnist(tmp_path / "fashion-mnist", per_class=5)
    whole = load("fashion-mnist", tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        script.make(whole, tmp_path / name, 3, 2)
    for name in (ARCHIVE, CHECKSUMS):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    made = load_embedded(tmp_path / "one")
    kept = [i for i, y in enumerate(whole.train_y) if np.count_nonzero(whole.train_y[:i] == y) < 3]
    np.testing.assert_array_equal(made.train_x, whole.train_x[kept])
    assert made.manifest["counts"] == {"train": 30, "test": 20}


def test_make_embedded_from_too_few_rows_is_refused(
    tmp_path: Path, script: ModuleType, write_mnist: Callable[..., Path]
) -> None:
    write_mnist(tmp_path / "fashion-mnist", per_class=2)
    with pytest.raises(UserError, match="fewer than 3 rows"):
        script.make(load("fashion-mnist", tmp_path), tmp_path, 3, 2)
    assert not (tmp_path / ARCHIVE).exists()
