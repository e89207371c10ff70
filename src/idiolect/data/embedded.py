"""The dataset inside the package: a class-balanced part of Fashion-MNIST, so a first run needs no network.

The first 1,000 training and 200 test images of each class, in the original order.  `scripts/make_embedded.py`
makes the file and its checksum.
Source: H. Xiao, K. Rasul and R. Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking machine
learning algorithms", 2017, https://arxiv.org/abs/1708.07747.  MIT licence, beside the file.
"""

from __future__ import annotations

import hashlib
import io
from importlib.resources import files
from importlib.resources.abc import Traversable

import numpy as np

from idiolect.data.dataset import Dataset
from idiolect.data.sources import SOURCES
from idiolect.errors import UserError

__all__ = ["ARCHIVE", "CHECKSUMS", "EMBEDDED", "TEST_PER_CLASS", "TRAIN_PER_CLASS", "load_embedded"]

EMBEDDED = "fashion-mnist-12k"
ARCHIVE = f"{EMBEDDED}.npz"
CHECKSUMS = "SHA256SUMS"
TRAIN_PER_CLASS = 1_000
TEST_PER_CLASS = 200


def load_embedded(folder: Traversable | None = None) -> Dataset:
    """Reads the embedded dataset after checking its sha256.

    Args:
        folder: where the archive and its checksum lie; the package's own by default.
    """
    folder = files("idiolect.data").joinpath("embedded") if folder is None else folder
    archive = folder.joinpath(ARCHIVE)
    try:
        raw = archive.read_bytes()
        expected = folder.joinpath(CHECKSUMS).read_text(encoding="ascii").split()[0]
    except (OSError, UnicodeDecodeError, IndexError) as problem:
        raise UserError(
            f"the embedded dataset in {folder} cannot be read ({problem}); reinstall idiolect"
        ) from problem
    found = hashlib.sha256(raw).hexdigest()
    if found != expected:
        raise UserError(
            f"{archive} is damaged: expected sha256 {expected}, found {found}; reinstall idiolect"
        )
    with np.load(io.BytesIO(raw), allow_pickle=False) as stored:
        parts = {key: stored[key] for key in ("train_x", "train_y", "test_x", "test_y")}
    origin = SOURCES["fashion-mnist"]
    return Dataset(
        name=EMBEDDED,
        train_x=parts["train_x"],
        train_y=parts["train_y"].astype(np.int64),
        test_x=parts["test_x"],
        test_y=parts["test_y"].astype(np.int64),
        n_classes=origin.n_classes,
        mean=origin.mean,
        std=origin.std,
        manifest={
            "source": f"{origin.home}, first {TRAIN_PER_CLASS} + {TEST_PER_CLASS} images of each class",
            "licence": origin.licence,
            "sha256": {ARCHIVE: found},
            "counts": {"train": len(parts["train_y"]), "test": len(parts["test_y"])},
        },
    )
