"""The content of a dataset's files, as a reader returns it."""

from __future__ import annotations

from typing import NamedTuple

from idiolect.data.dataset import Array

__all__ = ["Part", "ReaderResult"]

Part = tuple[Array, Array, dict[str, str]]  # rows, labels, sha256 of each file read


class ReaderResult(NamedTuple):
    """The arrays of a `Dataset`, and what its manifest records about the files.

    Args:
        sha256: of each file, or of a whole folder of them.
        train_ids: the owner of each training row, a number.
        owners: the name of each owner, by number.
        n_classes: the number of classes, where an option decides it.
        left_out: reason -> the number of samples that were in the files and left out.
    """

    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array
    sha256: dict[str, str]
    train_ids: Array | None = None
    owners: tuple[str, ...] = ()
    n_classes: int | None = None
    left_out: dict[str, int] = {}
