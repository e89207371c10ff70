"""A dataset as plain arrays: images or tokens, labels, constants that normalise, and where all came from.

    x' = (x / 255 - mean) / std        per channel of an image; the division by 255 is for uint8 only

Nothing here knows of clients; `train_ids` merely names the natural owner of each training row, where it has
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from idiolect.data.checks import Array, check_ids, check_part, check_scale, what
from idiolect.errors import UserError

__all__ = ["Array", "Dataset", "normalised"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """One dataset, checked when it is made.

    Args:
        name: what the catalogue calls it.
        train_x, test_x: images [N, C, H, W], uint8 (0..255) or float32; or, with a vocabulary, tokens [N, L],
            int64 in 0..vocabulary-1.
        train_y, test_y: [N], int64 in 0..n_classes-1; the test part may be empty.
        n_classes: K.
        mean, std: one number per channel, on the 0..1 scale for uint8 images; none for tokens.
        manifest: source, licence, sha256 of each file read, counts; plain values that JSON can hold.
        train_ids: [N] integers naming the natural owner of each training row, or None.
        vocabulary: number of different tokens, or None for images.
    """

    name: str
    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array
    n_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    manifest: dict[str, Any]
    train_ids: Array | None = None
    vocabulary: int | None = None

    def __post_init__(self) -> None:
        where = f"dataset {self.name!r}"
        check_part(f"{where}, train", self.train_x, self.train_y, self.n_classes, self.vocabulary)
        check_part(f"{where}, test", self.test_x, self.test_y, self.n_classes, self.vocabulary)
        if not len(self.train_x):
            raise UserError(f"{where} has no training rows; give at least one")
        if self.train_x.shape[1:] != self.test_x.shape[1:] or self.train_x.dtype != self.test_x.dtype:
            raise UserError(
                f"{where}: train rows are {self.train_x.dtype}{list(self.train_x.shape[1:])} but test rows "
                f"are {self.test_x.dtype}{list(self.test_x.shape[1:])}; both need one type and one [C, H, W]"
            )
        check_scale(where, self.mean, self.std, 0 if self.is_tokens else self.shape[0])
        if self.train_ids is not None:
            check_ids(where, self.train_ids, len(self.train_x))

    def pooled(self) -> Dataset:
        """The training and the test part as one, without a test part; whose rows they were is forgotten.

        Raises:
            UserError: there is no test part.
        """
        if not len(self.test_y):
            raise UserError(
                f"dataset {self.name!r} has no test part to join with its training part; set pool to train"
            )
        return replace(
            self,
            train_x=np.concatenate([self.train_x, self.test_x]),
            train_y=np.concatenate([self.train_y, self.test_y]),
            test_x=self.test_x[:0],
            test_y=self.test_y[:0],
            train_ids=None,
        )

    @property
    def is_tokens(self) -> bool:
        return self.vocabulary is not None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of an image, (1, 1, L) of L tokens: what a network is built for."""
        channels, height, width = (1, 1, *self.train_x.shape[1:])[-3:]
        return channels, height, width


def normalised(
    x: Array, mean: Sequence[float], std: Sequence[float], out: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """Returns (x - mean) / std as float32 rows [N, C, H, W], with uint8 first brought to 0..1.

    Args:
        out: where to write them, [N, C, H, W]; new rows by default.  No other copy is held.

    >>> normalised(np.full((1, 1, 1, 2), 255, np.uint8), (0.5,), (0.5,)).ravel().tolist()
    [1.0, 1.0]
    """
    if x.ndim != 4 or x.dtype not in (np.uint8, np.float32):
        raise UserError(f"normalised() takes a uint8 or float32 array [N, C, H, W], not {what(x)}")
    check_scale("normalised()", tuple(mean), tuple(std), x.shape[1])
    out = np.empty(x.shape, np.float32) if out is None else out
    np.copyto(out, x)
    if x.dtype == np.uint8:
        out /= np.float32(255)
    out -= np.asarray(mean, np.float32)[:, None, None]
    out /= np.asarray(std, np.float32)[:, None, None]
    return out
