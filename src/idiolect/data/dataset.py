"""A dataset as plain arrays: images or tokens, labels, normalisation constants and a manifest of their origin.

    x' = (x / 255 - mean) / std        per channel of an image; the division by 255 is for uint8 only

Nothing here knows of clients; `train_ids` names the natural owner of each training row, where it has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from idiolect.errors import UserError

__all__ = ["Array", "Dataset", "normalised"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Dataset:
    """One dataset, which is checked when it is created.

    Args:
        name: its name in the catalogue.
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
        _check_part(f"{where}, train", self.train_x, self.train_y, self.n_classes, self.vocabulary)
        _check_part(f"{where}, test", self.test_x, self.test_y, self.n_classes, self.vocabulary)
        if not len(self.train_x):
            raise UserError(f"{where} has no training rows; give at least one")
        if self.train_x.shape[1:] != self.test_x.shape[1:] or self.train_x.dtype != self.test_x.dtype:
            raise UserError(
                f"{where}: train rows are {self.train_x.dtype}{list(self.train_x.shape[1:])} but test rows "
                f"are {self.test_x.dtype}{list(self.test_x.shape[1:])}; both need one type and one [C, H, W]"
            )
        _check_scale(where, self.mean, self.std, 0 if self.is_tokens else self.shape[0])
        if self.train_ids is not None:
            _check_ids(where, self.train_ids, len(self.train_x))

    def pooled(self) -> Dataset:
        """Returns the training and the test part as one training part, without owners of the rows.

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
        out: where to write the rows, [N, C, H, W]; a new array by default.  There is no other copy.

    >>> normalised(np.full((1, 1, 1, 2), 255, np.uint8), (0.5,), (0.5,)).ravel().tolist()
    [1.0, 1.0]
    """
    if x.ndim != 4 or x.dtype not in (np.uint8, np.float32):
        raise UserError(f"normalised() takes a uint8 or float32 array [N, C, H, W], not {_shape_of(x)}")
    _check_scale("normalised()", tuple(mean), tuple(std), x.shape[1])
    out = np.empty(x.shape, np.float32) if out is None else out
    np.copyto(out, x)
    if x.dtype == np.uint8:
        out /= np.float32(255)
    out -= np.asarray(mean, np.float32)[:, None, None]
    out /= np.asarray(std, np.float32)[:, None, None]
    return out


def _check_part(where: str, x: Array, y: Array, n_classes: int, vocabulary: int | None) -> None:
    """Checks rows and labels of the training or the test part; `where` ends in its name."""
    if vocabulary is None:
        _check_images(where, x)
    else:
        _check_tokens(where, x, vocabulary)
    if not isinstance(y, np.ndarray) or y.ndim != 1 or y.dtype != np.int64:
        raise UserError(f"{where}_y must be an int64 array [N], not {_shape_of(y)}")
    if len(x) != len(y):
        raise UserError(
            f"{where}_x has {len(x)} rows but {where.rsplit(', ', maxsplit=1)[-1]}_y has {len(y)}; they must match"
        )
    if len(y) and not (y.min() >= 0 and y.max() < n_classes):
        raise UserError(
            f"{where}_y holds labels {y.min()}..{y.max()}, but with n_classes={n_classes} they must lie in "
            f"0..{n_classes - 1}"
        )


def _check_images(where: str, x: Array) -> None:
    if not isinstance(x, np.ndarray) or x.ndim != 4 or x.dtype not in (np.uint8, np.float32):
        raise UserError(
            f"{where}_x must be a uint8 or float32 array [N, C, H, W] (or, with a vocabulary, an int64 array "
            f"[N, L]), not {_shape_of(x)}"
        )
    if x.dtype == np.float32 and not np.isfinite(x).all():
        raise UserError(f"{where}_x holds NaN or infinity; remove or replace those values")


def _check_tokens(where: str, x: Array, vocabulary: int) -> None:
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.dtype != np.int64:
        raise UserError(f"{where}_x must, with a vocabulary, be an int64 array [N, L], not {_shape_of(x)}")
    if x.size and not (x.min() >= 0 and x.max() < vocabulary):
        raise UserError(
            f"{where}_x holds tokens {x.min()}..{x.max()}, but with vocabulary={vocabulary} they must lie in "
            f"0..{vocabulary - 1}"
        )


def _check_scale(where: str, mean: tuple[float, ...], std: tuple[float, ...], channels: int) -> None:
    """Checks for one finite mean and one positive deviation per channel."""
    for key, values in (("mean", mean), ("std", std)):
        if len(values) != channels or not np.isfinite(values).all():
            raise UserError(
                f"{where}: {key} must hold {channels} finite numbers, one per channel, not {values!r}"
            )
    if channels and min(std) <= 0:
        raise UserError(f"{where}: std must be above 0 in every channel, not {std!r}")


def _check_ids(where: str, ids: Array, rows: int) -> None:
    """Checks for one whole number per training row."""
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise UserError(f"{where}: train_ids must be an integer array [N], not {_shape_of(ids)}")
    if len(ids) != rows:
        raise UserError(
            f"{where}: train_ids has {len(ids)} entries for {rows} training rows; give one per row"
        )


def _shape_of(value: object) -> str:
    """Returns type and shape of a value, for messages."""
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
