"""FEMNIST: handwritten digits and letters by writer, as LEAF writes them.

An image is 784 numbers in 0..1, row by row, with the ink dark on white (1); labels are those of EMNIST byclass.
They are kept as the bytes they were made from.
Source: S. Caldas et al., "LEAF: a benchmark for federated settings", 2018, https://arxiv.org/abs/1812.01097,
https://github.com/TalwalkarLab/leaf, data/femnist.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from idiolect.data.dataset import Array
from idiolect.data.leaf import read_leaf
from idiolect.data.reader_result import ReaderResult
from idiolect.data.sources import Source

__all__ = ["read_femnist"]

_SIDE = 28
_CLASSES = 62


def read_femnist(source: Source, root: Path) -> ReaderResult:
    """Reads all samples of all writers; the owner of a sample is its writer."""
    return read_leaf(source, root, _convert, (1, _SIDE, _SIDE), np.uint8)


def _convert(x: Any, y: Any) -> tuple[Array, Array] | str:
    try:
        with np.errstate(over="ignore"):  # infinity is refused below
            pixels = (
                np.asarray(x, np.float32).reshape(len(x), -1)
                if len(x)
                else np.empty((0, _SIDE**2), np.float32)
            )
        labels = np.asarray(y, None if len(y) else np.int64)
    except (TypeError, ValueError):
        return "has an x or y that is no list of numbers"
    if pixels.shape != (len(x), _SIDE**2) or labels.shape != (len(x),):
        return f"has x of shape {list(pixels.shape)} and y of shape {list(labels.shape)}, expected [N, 784] and [N]"
    if not ((pixels >= 0) & (pixels <= 1)).all():
        return "has pixels outside 0..1"
    if labels.dtype.kind not in "iu" or (labels.size and not (labels.min() >= 0 and labels.max() < _CLASSES)):
        return f"has labels that are no whole numbers in 0..{_CLASSES - 1}"
    images = np.rint(pixels * 255).astype(np.uint8).reshape(-1, 1, _SIDE, _SIDE)
    return images, labels.astype(np.int64)
