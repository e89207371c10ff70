"""CINIC-10: CIFAR-10's classes with images of CIFAR-10 and ImageNet, one folder of PNG files per class.

    train|valid|test / airplane|automobile|...|truck / *.png          32x32, 9,000 in each folder

As in MAP, the validation part is not used.
Source: L. Darlow, E. Crowley, A. Antoniou and A. Storkey, "CINIC-10 is not ImageNet or CIFAR-10", 2018,
https://arxiv.org/abs/1810.03505.
"""

from __future__ import annotations

from pathlib import Path

from idiolect.data.image_files import read_class_folders
from idiolect.data.location import fetch_again, locate
from idiolect.data.reader_result import Part, ReaderResult
from idiolect.data.sources import Source

__all__ = ["read_cinic"]

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def read_cinic(source: Source, root: Path) -> ReaderResult:
    """Reads the parts train and test."""
    folder, advice = locate(source, root), fetch_again(source, root)
    train_x, train_y, train_sums = _read_part(folder / "train", source.shape[1], advice)
    test_x, test_y, test_sums = _read_part(folder / "test", source.shape[1], advice)
    return ReaderResult(train_x, train_y, test_x, test_y, train_sums | test_sums)


def _read_part(folder: Path, side: int, advice: str) -> Part:
    images, labels, digest = read_class_folders([folder / name for name in CLASSES], "*.png", side, advice)
    return images, labels, {folder.name: digest}
