"""Small files of the true formats, written where a test wants them."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import pickle
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from idiolect.data.sources import SOURCES, KnownFile


def idx_bytes(values: np.ndarray[Any, Any], kind: int = 0x08) -> bytes:
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, kind, values.ndim, *values.shape)
    return header + values.astype(np.uint8).tobytes()


@pytest.fixture
def to_idx() -> Callable[..., bytes]:
    return idx_bytes


def publish(patch: pytest.MonkeyPatch, name: str, content: dict[str, bytes]) -> None:
    """Lets a dataset be published as these files, so that their checksums are the known ones."""
    source = SOURCES[name]

    def known(files: tuple[KnownFile, ...]) -> tuple[KnownFile, ...]:
        return tuple(
            KnownFile(file.name, hashlib.md5(content[file.name]).hexdigest())
            if file.name in content
            else file
            for file in files
        )

    changed = dataclasses.replace(
        source, train_files=known(source.train_files), test_files=known(source.test_files)
    )
    patch.setitem(SOURCES, name, changed)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return partial(publish, monkeypatch)


@pytest.fixture
def write_mnist(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes and publishes the four files of MNIST or Fashion-MNIST: `per_class` train and test rows of each class."""

    def write(folder: Path, per_class: int = 2, packed: bool = True) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for part, seed in (("train", 0), ("t10k", 1)):
            labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(10), per_class))
            images = np.random.default_rng(seed).integers(0, 256, (len(labels), 28, 28))
            for stem, values in (
                (f"{part}-images-idx3-ubyte", images),
                (f"{part}-labels-idx1-ubyte", labels),
            ):
                raw = idx_bytes(values)
                path = folder / (f"{stem}.gz" if packed else stem)
                path.write_bytes(gzip.compress(raw, mtime=0) if packed else raw)
        content = {path.name: path.read_bytes() for path in folder.iterdir()}
        for name in ("mnist", "fashion-mnist"):
            publish(monkeypatch, name, content)
        return folder

    return write


@pytest.fixture
def cifar_batch() -> Callable[..., dict[str, Any]]:
    """The content of one CIFAR batch file."""

    def make(rows: int = 3, seed: int = 0, labels_key: str = "labels", n_classes: int = 10) -> dict[str, Any]:
        random = np.random.default_rng(seed)
        data = random.integers(0, 256, (rows, 3072), dtype=np.uint8)
        return {"data": data, labels_key: random.integers(0, n_classes, rows).tolist()}

    return make


@pytest.fixture
def write_cifar10(
    cifar_batch: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        folder.mkdir(parents=True)
        for seed, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
            (folder / name).write_bytes(pickle.dumps(cifar_batch(seed=seed)))
        publish(monkeypatch, "cifar10", {path.name: path.read_bytes() for path in folder.iterdir()})
        return folder

    return write


class Home:
    """A dataset's home in memory; remembers what was asked of it."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.asked: list[str] = []

    def __call__(self, url: str) -> IO[bytes]:
        self.asked.append(url)
        return io.BytesIO(self.content[url.rsplit("/", 1)[-1]])


@pytest.fixture
def home_of() -> Callable[[dict[str, bytes]], Home]:
    return Home


@pytest.fixture
def mnist_home(
    tmp_path_factory: pytest.TempPathFactory,
    write_mnist: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Home:
    """Small files in MNIST's place, and a catalogue that knows their checksums."""
    folder = write_mnist(tmp_path_factory.mktemp("home"))
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    publish(monkeypatch, "mnist", content)
    return Home(content)
