"""What a dataset must be, refused by name where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from idiolect.errors import UserError

__all__ = ["Array", "check_ids", "check_part", "check_scale", "what"]

Array = npt.NDArray[Any]


def check_part(where: str, x: Array, y: Array, n_classes: int, vocabulary: int | None) -> None:
    """Rows and labels of the training or the test part; `where` ends in its name."""
    if vocabulary is None:
        _check_images(where, x)
    else:
        _check_tokens(where, x, vocabulary)
    if not isinstance(y, np.ndarray) or y.ndim != 1 or y.dtype != np.int64:
        raise UserError(f"{where}_y must be an int64 array [N], not {what(y)}")
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
            f"[N, L]), not {what(x)}"
        )
    if x.dtype == np.float32 and not np.isfinite(x).all():
        raise UserError(f"{where}_x holds NaN or infinity; remove or replace those values")


def _check_tokens(where: str, x: Array, vocabulary: int) -> None:
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.dtype != np.int64:
        raise UserError(f"{where}_x must, with a vocabulary, be an int64 array [N, L], not {what(x)}")
    if x.size and not (x.min() >= 0 and x.max() < vocabulary):
        raise UserError(
            f"{where}_x holds tokens {x.min()}..{x.max()}, but with vocabulary={vocabulary} they must lie in "
            f"0..{vocabulary - 1}"
        )


def check_scale(where: str, mean: tuple[float, ...], std: tuple[float, ...], channels: int) -> None:
    """One finite mean and one positive deviation per channel."""
    for key, values in (("mean", mean), ("std", std)):
        if len(values) != channels or not np.isfinite(values).all():
            raise UserError(
                f"{where}: {key} must hold {channels} finite numbers, one per channel, not {values!r}"
            )
    if channels and min(std) <= 0:
        raise UserError(f"{where}: std must be above 0 in every channel, not {std!r}")


def check_ids(where: str, ids: Array, rows: int) -> None:
    """One whole number per training row."""
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise UserError(f"{where}: train_ids must be an integer array [N], not {what(ids)}")
    if len(ids) != rows:
        raise UserError(
            f"{where}: train_ids has {len(ids)} entries for {rows} training rows; give one per row"
        )


def what(value: object) -> str:
    """Type and shape of a value, for messages."""
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
