"""EMNIST: handwritten digits and letters in idx files, in six official splits.

The images of its files are stored column by column, the transpose of MNIST's; here they stand upright.
Source: G. Cohen, S. Afshar, J. Tapson and A. van Schaik, "EMNIST: an extension of MNIST to handwritten letters",
2017, https://arxiv.org/abs/1702.05373.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from idiolect.data.idx import read_idx_part
from idiolect.data.location import fetch_again, locate
from idiolect.data.reader_result import Part, ReaderResult
from idiolect.data.sources import EMNIST_SPLITS, KnownFile, Source, emnist_files
from idiolect.errors import refuse_unknown_choice

__all__ = ["read_emnist"]


def read_emnist(source: Source, root: Path, *, split: str = "byclass") -> ReaderResult:
    """Reads one split.

    Args:
        split: byclass (62 classes: digits, capitals, small letters), bymerge (47), balanced (47), letters (26),
            digits (10) or mnist (10).

    The labels of `letters`, 1 to 26 in its files, are counted from 0 like all others.
    """
    refuse_unknown_choice("dataset emnist: split", split, EMNIST_SPLITS)
    chosen = replace(source, train_files=emnist_files(split, "train"), test_files=emnist_files(split, "test"))
    folder, advice = locate(chosen, root), fetch_again(chosen, root)
    first = 1 if split == "letters" else 0
    train_x, train_y, train_sums = _read_part(chosen.train_files, folder, advice, first)
    test_x, test_y, test_sums = _read_part(chosen.test_files, folder, advice, first)
    return ReaderResult(
        train_x, train_y, test_x, test_y, train_sums | test_sums, n_classes=EMNIST_SPLITS[split]
    )


def _read_part(files: tuple[KnownFile, ...], folder: Path, advice: str, first: int) -> Part:
    images, labels, sums = read_idx_part(files, folder, advice)
    return np.ascontiguousarray(images.swapaxes(2, 3)), labels - first, sums
