"""CIFAR-10 and CIFAR-100 as their author distributes them for Python.

Each file is a pickled dictionary; row i of `data` holds 3072 bytes, 1024 red then green then blue,
row-major, and `labels` (CIFAR-100: `fine_labels`) holds its class.
Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009,
https://www.cs.toronto.edu/~kriz/cifar.html, section "Dataset layout".
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from idiolect.data.reader_result import Part
from idiolect.data.safe_unpickling import read_pickled_dict
from idiolect.data.sources import KnownFile
from idiolect.errors import UserError

__all__ = ["read_cifar", "read_cifar_part"]

_SHAPE = (3, 32, 32)
_ROW = 3 * 32 * 32
_LABEL_KEYS = ("labels", "fine_labels")
_ADVICE = "get it with `idiolect datasets get NAME --data-dir DIR`"


def read_cifar(path: Path, advice: str = _ADVICE) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], str]:
    """Reads one batch file.

    Returns: images [N, 3, 32, 32], labels [N], and the sha256 of the file.
    """
    try:
        raw = path.read_bytes()
    except OSError as problem:
        raise UserError(f"cannot read {path} ({problem.strerror or problem}); {advice}") from problem
    content = read_pickled_dict(raw, path, advice)
    labels_key = next((key for key in _LABEL_KEYS if key in content), None)
    if "data" not in content or labels_key is None:
        raise UserError(
            f"{path} holds {sorted(content)}, expected 'data' and 'labels' (or 'fine_labels'); {advice}"
        )
    images = _images(content["data"], path, advice)
    labels = _labels(content[labels_key], path, advice)
    if len(images) != len(labels):
        raise UserError(
            f"{path} holds {len(images)} images but {len(labels)} labels; expected as many of each; {advice}"
        )
    return images, labels, hashlib.sha256(raw).hexdigest()


def _images(data: Any, path: Path, advice: str) -> npt.NDArray[np.uint8]:
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _ROW:
        found = f"{data.dtype}{list(data.shape)}" if isinstance(data, np.ndarray) else type(data).__name__
        raise UserError(f"{path}: 'data' is {found}, expected uint8[N, {_ROW}]; {advice}")
    return data.reshape(-1, *_SHAPE)


def _labels(labels: Any, path: Path, advice: str) -> npt.NDArray[np.int64]:
    listed = labels.tolist() if isinstance(labels, np.ndarray) else labels
    if not isinstance(listed, list) or not all(type(label) is int for label in listed):
        raise UserError(f"{path}: the labels are not a flat list of whole numbers; {advice}")
    return np.asarray(listed, np.int64)


def read_cifar_part(files: tuple[KnownFile, ...], folder: Path, advice: str = _ADVICE) -> Part:
    """Reads batch files one after the other: rows [N, 3, 32, 32], labels [N], sha256 by file name."""
    batches = {file.name: read_cifar(folder / file.name, advice) for file in files}
    images = np.concatenate([images for images, _, _ in batches.values()])
    labels = np.concatenate([labels for _, labels, _ in batches.values()])
    return images, labels, {name: digest for name, (_, _, digest) in batches.items()}
