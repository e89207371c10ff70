from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from idiolect.data import load
from idiolect.data.cifar import read_cifar
from idiolect.errors import UserError

Batch = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("bytes_keys", [False, True])
@pytest.mark.parametrize("labels_key", ["labels", "fine_labels"])
def test_read_cifar_gives_images_labels_and_checksum(
    tmp_path: Path, cifar_batch: Batch, bytes_keys: bool, labels_key: str
) -> None:
    batch = cifar_batch(rows=4, labels_key=labels_key)
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({k.encode() if bytes_keys else k: v for k, v in batch.items()}, 2))
    images, labels, digest = read_cifar(path)
    assert images.shape == (4, 3, 32, 32)
    np.testing.assert_array_equal(images[1, 2, 0], batch["data"][1, 2048:2080])  # blue, first row
    assert labels.tolist() == batch[labels_key]
    assert labels.dtype == np.int64
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": np.zeros((3, 3071), np.uint8)}, r"'data' is uint8\[3, 3071\], expected uint8\[N, 3072\]"),
        ({"data": np.zeros((3, 3, 32, 32), np.uint8)}, r"'data' is uint8\[3, 3, 32, 32\]"),
        ({"data": np.zeros((3, 3072), np.int64)}, r"'data' is int64"),
        ({"data": [1, 2, 3]}, "'data' is list"),
        ({"labels": [1, 2]}, "3 images but 2 labels"),
        ({"labels": [1, "two", 3]}, "not a flat list of whole numbers"),
        ({"labels": [[1], [2], [3]]}, "not a flat list of whole numbers"),
        ({"labels": None}, "not a flat list of whole numbers"),
    ],
)
def test_read_cifar_wrong_content_says_what_was_expected(
    tmp_path: Path, cifar_batch: Batch, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(cifar_batch() | changes))
    with pytest.raises(UserError, match=message) as caught:
        read_cifar(path, "ask Ann")
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith("ask Ann")


def test_read_cifar_without_labels_lists_what_there_is(tmp_path: Path, cifar_batch: Batch) -> None:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(cifar_batch(labels_key="coarse_labels")))
    with pytest.raises(UserError, match=r"holds \['coarse_labels', 'data'\], expected 'data' and 'labels'"):
        read_cifar(path)


def test_read_cifar_truncated_file_is_refused(tmp_path: Path, cifar_batch: Batch) -> None:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(cifar_batch())[:-100])
    with pytest.raises(UserError, match="not a whole pickle"):
        read_cifar(path)


def test_cifar10_batches_are_joined_in_order(
    tmp_path: Path, write_cifar10: Callable[[Path], Path], cifar_batch: Batch
) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    dataset = load("cifar10", tmp_path)
    expected = np.concatenate([cifar_batch(seed=seed)["data"] for seed in range(5)])
    np.testing.assert_array_equal(dataset.train_x.reshape(15, 3072), expected)
    assert dataset.test_y.tolist() == cifar_batch(seed=5)["labels"]
    assert dataset.manifest["counts"] == {"train": 15, "test": 3}
    assert len(dataset.manifest["sha256"]) == 6
    assert dataset.mean == (0.4914, 0.4822, 0.4465)


def test_cifar100_uses_the_fine_labels(
    tmp_path: Path, cifar_batch: Batch, published: Callable[..., None]
) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    batch = cifar_batch(rows=20, labels_key="fine_labels", n_classes=100) | {"coarse_labels": [0] * 20}
    for name in ("train", "test"):
        (folder / name).write_bytes(pickle.dumps({key.encode(): value for key, value in batch.items()}, 2))
    published("cifar100", {path.name: path.read_bytes() for path in folder.iterdir()})
    dataset = load("cifar100", tmp_path)
    assert dataset.n_classes == 100
    assert dataset.train_y.tolist() == batch["fine_labels"]
    assert max(batch["fine_labels"]) > 9
