"""A dataset as plain arrays: rows of any shape, targets by task, normalisation and a manifest of its origin.

    x' = (x / 255 - mean) / std        per channel, the first axis of a row; the division by 255 is for uint8 only

Nothing here knows of clients; `train_ids` names the natural owner of each training row, where it has one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from idiolect.errors import UserError, refuse_unknown_choice

__all__ = ["CLASS_TASKS", "SPLITS", "TASKS", "Array", "Dataset", "normalised"]

Array = npt.NDArray[Any]
CLASS_TASKS = ("classification", "binary", "next_token")  # each row has one of K classes
TASKS = (*CLASS_TASKS, "multilabel", "regression")
DIGESTED = {
    "train_x": "training rows",
    "train_y": "training labels",
    "test_x": "test rows",
    "test_y": "test labels",
    "train_ids": "owners of rows",
    "splits": "given splits",
    "times": "times of rows",
    "groups": "groups of rows",
}  # arrays, as messages call them
SPLITS = ("train", "valid", "test")  # what the numbers in `Dataset.splits` stand for


@dataclass(frozen=True, eq=False)
class Dataset:
    """One dataset, which is checked when it is created.

    Args:
        name: its name in the catalogue.
        train_x, test_x: rows [N, ...] of any shape, uint8 (0..255) or float32; or, with a vocabulary, tokens [N, L],
            int64 in 0..vocabulary-1.
        train_y, test_y: the targets, by task: one class for each row, int64 [N] in 0..n_classes-1; for `multilabel`
            float32 [N, K] of 0 and 1; for `regression` float32 [N, K].  The test part may be empty.
        n_classes: K, the number of classes, of labels or of target numbers: what a network puts out.
        mean, std: one number per channel, on the 0..1 scale for uint8 rows; none for tokens.  None stands for values
            that standardise the clients' training rows.
        manifest: source, licence, sha256 of each file read, counts; plain values that JSON can hold.
        train_ids: [N] integers or strings naming the natural owner of each training row, or None.
        vocabulary: number of different tokens, or None for rows of numbers.
        task: one of `TASKS`.
        class_names: how class, label or target k is written where the data come from; empty if nothing is known.
        feature_names: names of the numbers in a flat row, such as the columns of a table.
        inputs: (name, shape) of several inputs that lie one after the other in a flat row.
        splits: [N] int8, the place in `SPLITS` of each training row, where the split is given.
        times: [N] numbers by which a client's rows are ordered, where its last rows are to be its test rows.
        groups: [N] integers; a client's rows of one group never lie in different splits.
        fill: what replaces a missing value (NaN): `mean` of the training rows, `zero` or a number; `none` refuses it.
    """

    name: str
    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array
    n_classes: int
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    manifest: dict[str, Any]
    train_ids: Array | None = None
    vocabulary: int | None = None
    task: str = "classification"
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    inputs: tuple[tuple[str, tuple[int, ...]], ...] = ()
    splits: Array | None = None
    times: Array | None = None
    groups: Array | None = None
    fill: str = "none"

    def __post_init__(self) -> None:
        where = f"dataset {self.name!r}"
        refuse_unknown_choice(f"{where}: task", self.task, TASKS)
        _check_fill(where, self.fill)
        self._check_part("train", self.train_x, self.train_y)
        self._check_part("test", self.test_x, self.test_y)
        if not len(self.train_x):
            raise UserError(f"{where} has no training rows; give at least one")
        if self.train_x.shape[1:] != self.test_x.shape[1:] or self.train_x.dtype != self.test_x.dtype:
            raise UserError(
                f"{where}: train rows are {self.train_x.dtype}{list(self.train_x.shape[1:])} but test rows "
                f"are {self.test_x.dtype}{list(self.test_x.shape[1:])}; both need one type and one shape"
            )
        if self.mean is not None and self.std is not None:
            _check_scale(where, self.mean, self.std, 0 if self.is_tokens else self.shape[0])
        elif self.mean is not None or self.std is not None:
            raise UserError(f"{where} has only one of mean and std; give both, or None for both")
        if self.train_ids is not None:
            _check_ids(where, self.train_ids, len(self.train_x))
        self._check_names(where)
        self._check_split_columns(where)

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
    def has_classes(self) -> bool:
        """Whether each row has one of K classes, as methods with a softmax need."""
        return self.task in CLASS_TASKS

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row, such as (C, H, W) of an image; (1, 1, L) of L tokens: what a network is built for."""
        row = tuple(self.train_x.shape[1:])
        return (1, 1, *row) if self.is_tokens else row

    @property
    def train_labels(self) -> npt.NDArray[np.int64]:
        """The class of each training row; 0 for all rows where the task has no classes."""
        return self.train_y if self.has_classes else np.zeros(len(self.train_y), np.int64)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that changes numbers or predictions: rows, targets, owners, splits, task, filling, classes."""
        found = hashlib.sha256()
        for key in ("train_x", "train_y", "test_x", "test_y", "train_ids", "splits", "times", "groups"):
            array = getattr(self, key)
            if array is not None:
                found.update(f"{key} {array.dtype.str} {array.shape} ".encode())
                found.update(np.ascontiguousarray(array).tobytes())
        rest = [self.n_classes, self.mean, self.std, self.vocabulary, self.task, self.inputs, self.fill]
        names = self.class_names  # by which models predict
        found.update(json.dumps([*rest, names]).encode())
        return found.hexdigest()

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each thing that ``digest`` covers, by what a user calls it."""
        found = {what: _array_digest(getattr(self, key)) for key, what in DIGESTED.items()}
        rest = [self.n_classes, self.mean, self.std, self.vocabulary, self.task, self.inputs, self.fill]
        description = json.dumps([*rest, self.class_names]).encode()
        return {
            **{what: digest for what, digest in found.items() if digest},
            "task, classes and scaling": hashlib.sha256(description).hexdigest(),
        }

    def _check_part(self, part: str, x: Array, y: Array) -> None:
        """Checks rows and targets of the training or the test part."""
        where = f"dataset {self.name!r}, {part}"
        if self.vocabulary is None:
            _check_rows(where, x, self.fill, self.feature_names)
        else:
            _check_tokens(where, x, self.vocabulary)
        if self.has_classes:
            _check_classes(where, y, self.n_classes)
        else:
            _check_numbers(where, y, self.n_classes, self.task)
        if len(x) != len(y):
            raise UserError(f"{where}_x has {len(x)} rows but {part}_y has {len(y)}; they must match")

    def _check_names(self, where: str) -> None:
        """Checks that names fit what they name."""
        if self.task == "binary" and self.n_classes != 2:
            raise UserError(f"{where}: the task binary has two classes, not {self.n_classes}")
        for key, count in (("class_names", self.n_classes), ("feature_names", self.train_x.shape[1])):
            names = getattr(self, key)
            if names and len(names) != count:
                raise UserError(f"{where}: {key} holds {len(names)} names for {count}; give one for each")
        sizes = [int(np.prod(shape)) for _, shape in self.inputs]
        if sizes and self.shape != (sum(sizes),):
            raise UserError(
                f"{where}: its inputs hold {sum(sizes)} numbers, but its rows are {list(self.shape)}; pack the inputs "
                "of a row one after the other"
            )

    def _check_split_columns(self, where: str) -> None:
        given = [key for key in ("splits", "times", "groups") if getattr(self, key) is not None]
        if len(given) > 1:
            raise UserError(f"{where} is split by {' and by '.join(given)}; give one of them")
        for key in given:
            values = getattr(self, key)
            if values.shape != (len(self.train_y),) or values.dtype.kind not in (
                "iuf" if key == "times" else "iu"
            ):
                raise UserError(
                    f"{where}: {key} must be {len(self.train_y)} numbers, not {_shape_of(values)}"
                )
        if self.splits is not None and not np.isin(self.splits, range(len(SPLITS))).all():
            raise UserError(f"{where}: splits holds numbers other than 0 (train), 1 (valid) and 2 (test)")
        if self.times is not None and not np.isfinite(self.times).all():
            raise UserError(
                f"{where}: times holds values that are missing or infinite; give every row a time"
            )


def _array_digest(array: Array | None) -> str:
    if array is None:
        return ""
    found = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def normalised(
    x: Array, mean: Sequence[float], std: Sequence[float], out: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """Returns (x - mean) / std as float32 rows [N, C, ...], with uint8 first brought to 0..1.

    Args:
        out: where to write the rows, of the shape of ``x``; a new array by default.  There is no other copy.

    >>> normalised(np.full((1, 1, 1, 2), 255, np.uint8), (0.5,), (0.5,)).ravel().tolist()
    [1.0, 1.0]
    """
    if x.ndim < 2 or x.dtype not in (np.uint8, np.float32):
        raise UserError(f"normalised() takes a uint8 or float32 array [N, C, ...], not {_shape_of(x)}")
    _check_scale("normalised()", tuple(mean), tuple(std), x.shape[1])
    out = np.empty(x.shape, np.float32) if out is None else out
    np.copyto(out, x)
    if x.dtype == np.uint8:
        out /= np.float32(255)
    per_channel = (-1, *(1 for _ in x.shape[2:]))
    out -= np.asarray(mean, np.float32).reshape(per_channel)
    out /= np.asarray(std, np.float32).reshape(per_channel)
    return out


def _check_rows(where: str, x: Array, fill: str, names: tuple[str, ...]) -> None:
    """Checks rows of numbers; a value that is missing although nothing fills it is refused by its column."""
    if not isinstance(x, np.ndarray) or x.ndim < 2 or x.dtype not in (np.uint8, np.float32):
        raise UserError(
            f"{where}_x must be a uint8 or float32 array [N, ...] (or, with a vocabulary, an int64 array "
            f"[N, L]), not {_shape_of(x)}"
        )
    if x.dtype == np.uint8 or np.isfinite(x).all():
        return
    if np.isinf(x).any():
        raise UserError(f"{where}_x holds infinity; remove or replace those values")
    if fill == "none":
        missing = np.isnan(x).sum(axis=tuple(a for a in range(x.ndim) if a != 1))
        first = int(np.flatnonzero(missing)[0])
        column = f"column {names[first]!r}" if names else f"channel {first}"
        raise UserError(
            f"{where}_x holds NaN: {int(missing.sum())} values are missing, {int(missing[first])} of them in {column}; "
            "fill them (fill=mean or --fill mean; zero or a number do too) or remove those rows"
        )


def _check_tokens(where: str, x: Array, vocabulary: int) -> None:
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.dtype != np.int64:
        raise UserError(f"{where}_x must, with a vocabulary, be an int64 array [N, L], not {_shape_of(x)}")
    if x.size and not (x.min() >= 0 and x.max() < vocabulary):
        raise UserError(
            f"{where}_x holds tokens {x.min()}..{x.max()}, but with vocabulary={vocabulary} they must lie in "
            f"0..{vocabulary - 1}"
        )


def _check_classes(where: str, y: Array, n_classes: int) -> None:
    if not isinstance(y, np.ndarray) or y.ndim != 1 or y.dtype != np.int64:
        raise UserError(f"{where}_y must be an int64 array [N], not {_shape_of(y)}")
    if len(y) and not (y.min() >= 0 and y.max() < n_classes):
        raise UserError(
            f"{where}_y holds labels {y.min()}..{y.max()}, but with n_classes={n_classes} they must lie in "
            f"0..{n_classes - 1}"
        )


def _check_numbers(where: str, y: Array, outputs: int, task: str) -> None:
    """Checks the targets of a regression, or the labels of rows that may have several."""
    if not isinstance(y, np.ndarray) or y.ndim != 2 or y.dtype != np.float32 or y.shape[1] != outputs:
        raise UserError(f"{where}_y must, for {task}, be a float32 array [N, {outputs}], not {_shape_of(y)}")
    if not np.isfinite(y).all():
        raise UserError(f"{where}_y holds NaN or infinity; remove those rows")
    if task == "multilabel" and not np.isin(y, (0, 1)).all():
        raise UserError(f"{where}_y must, for multilabel, hold 0 and 1 only")


def _check_fill(where: str, fill: str) -> None:
    if fill in ("none", "mean", "zero"):
        return
    try:
        fits = np.isfinite(float(fill))
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise UserError(f"{where}: fill must be none, mean, zero or a number, not {fill!r}")


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
    """Checks for one whole number or one string per training row."""
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise UserError(f"{where}: train_ids must be an integer or string array [N], not {_shape_of(ids)}")
    if len(ids) != rows:
        raise UserError(
            f"{where}: train_ids has {len(ids)} entries for {rows} training rows; give one per row"
        )


def _shape_of(value: object) -> str:
    """Returns type and shape of a value, for messages."""
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
