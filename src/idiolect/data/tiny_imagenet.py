"""Tiny ImageNet: 200 classes of ImageNet at 64x64, 500 training and 50 validation images each.

    wnids.txt; train/<wnid>/images/*.JPEG; val/images/*.JPEG with val/val_annotations.txt (image, wnid, box)

Its test part has no labels, so the validation part is the test set here; a class has the place of its wnid in
wnids.txt.  Grey images are read as colour.
Source: Y. Le and X. Yang, "Tiny ImageNet visual recognition challenge", 2015, Stanford course CS 231N.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from idiolect.data.image_files import read_class_folders, read_file, read_images, sorted_files
from idiolect.data.location import fetch_again, locate
from idiolect.data.reader_result import Part, ReaderResult
from idiolect.data.sources import Source
from idiolect.errors import UserError

__all__ = ["read_tiny_imagenet"]


def read_tiny_imagenet(source: Source, root: Path) -> ReaderResult:
    """Reads the training part, and the validation part as test set."""
    folder, advice = locate(source, root), fetch_again(source, root)
    wnids = _text(folder / "wnids.txt", advice).split()
    if len(wnids) > source.n_classes or len(set(wnids)) < len(wnids) or not wnids:
        raise UserError(
            f"{folder / 'wnids.txt'} names {len(wnids)} classes, expected {source.n_classes} different ones; {advice}"
        )
    classes, side = [folder / "train" / wnid / "images" for wnid in wnids], source.shape[1]
    train_x, train_y, digest = read_class_folders(classes, "*.JPEG", side, advice)
    test_x, test_y, sums = _read_val(folder / "val", wnids, side, advice)
    return ReaderResult(train_x, train_y, test_x, test_y, {"train": digest} | sums)


def _read_val(folder: Path, wnids: list[str], side: int, advice: str) -> Part:
    notes, label_of = folder / "val_annotations.txt", {wnid: label for label, wnid in enumerate(wnids)}
    rows = [line.split("\t") for line in _text(notes, advice).splitlines() if line.strip()]
    for number, row in enumerate(rows, start=1):
        if len(row) < 2 or row[1] not in label_of or Path(row[0]).name != row[0]:
            raise UserError(f"{notes}, line {number}: expected an image and a wnid of wnids.txt; {advice}")
    named, there = [row[0] for row in rows], sorted_files(folder / "images", "*.JPEG", advice)
    if sorted(named) != [path.name for path in there]:
        odd = sorted(set(named) ^ {path.name for path in there}) or ["a name given twice"]
        raise UserError(f"{notes} and {folder / 'images'} do not name the same images ({odd[0]}); {advice}")
    images, digest = read_images([folder / "images" / name for name in named], side, advice)
    labels = np.array([label_of[row[1]] for row in rows], np.int64)
    return images, labels, {folder.name: digest}


def _text(path: Path, advice: str) -> str:
    try:
        return read_file(path, advice).decode("ascii")
    except UnicodeDecodeError as problem:
        raise UserError(f"{path} is not a text file ({problem}); {advice}") from problem
