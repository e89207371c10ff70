"""Preprocessing of rows and targets, fitted on the clients' training rows from sums and counts alone.

    x' = (x / scale - mean) / std        per channel, the first axis of a row, with `fill` in place of missing values
    y' = (y - target_mean) / target_std        per target of a regression

Clients would send three things in two rounds: for every channel the sum and the number of their values, then the sum of
squared deviations from the mean that all of them have.  No row leaves a client, and no client learns another's sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from idiolect.data import Dataset, normalised
from idiolect.errors import UserError
from idiolect.federation.clients import Clients
from idiolect.partition import RowNumbers

__all__ = ["Preprocessing", "fit_preprocessing"]

AT_ONCE = 4096  # rows that are summed at a time
Vector = NDArray[np.float64]  # one number per channel


@dataclass(frozen=True)
class Preprocessing:
    """What is done to rows before a network sees them, and to the targets of a regression.

    Args:
        scale: what raw values are divided by first, 255 for bytes and 1 otherwise.
        mean, std: one number per channel, on the scale after the division; none for tokens.
        fill: by channel, what replaces a missing value, on the raw scale; none where nothing may be missing.
        target_mean, target_std: one number per target of a regression; none for other tasks.
    """

    scale: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    fill: tuple[float, ...] = ()
    target_mean: tuple[float, ...] = ()
    target_std: tuple[float, ...] = ()

    def rows(self, x: NDArray[Any], out: NDArray[np.float32] | None = None) -> NDArray[Any]:
        """Returns raw rows as a network reads them; tokens stay as they are.

        Args:
            out: where to write the rows; a new array by default.
        """
        if not self.mean:
            return x
        if self.fill and np.isnan(x).any():
            fill = np.asarray(self.fill, x.dtype).reshape(-1, *(1 for _ in x.shape[2:]))
            x = np.where(np.isnan(x), fill, x)
        return normalised(x, self.mean, self.std, out=out)

    def targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """Returns targets as a network is trained on them; labels stay as they are."""
        if not self.target_mean:
            return y
        standard = (y - np.asarray(self.target_mean)) / np.asarray(self.target_std)
        found: NDArray[Any] = standard.astype(np.float32)
        return found

    def plain(self) -> dict[str, Any]:
        """Returns values that JSON can hold, from which `Preprocessing(**values)` is made again."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}

    @classmethod
    def of_plain(cls, values: dict[str, Any]) -> Preprocessing:
        """Returns what ``plain`` wrote down."""
        found: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
        return cls(**found)


class Moments(NamedTuple):
    """Mean and standard deviation of each channel, and how many values it has."""

    mean: Vector
    std: Vector
    values: Vector


def fit_preprocessing(dataset: Dataset, clients: Clients, population: int) -> Preprocessing:
    """Fits the preprocessing of a dataset on the training rows of the first ``population`` clients."""

    def moments(x: NDArray[Any], scale: float) -> Moments:
        return _moments(x, lambda: (clients[client].train for client in range(population)), scale)

    targets: dict[str, Any] = {}
    if dataset.task == "regression":
        found = moments(dataset.train_y, 1.0)
        targets = {"target_mean": _plain(found.mean), "target_std": _plain(_or_one(found.std))}
    if dataset.is_tokens:
        return Preprocessing(**targets)
    scale = 255.0 if dataset.train_x.dtype == np.uint8 else 1.0
    mean, std, fill = dataset.mean, dataset.std, _constant_fill(dataset)
    if mean is None or std is None or dataset.fill == "mean":
        seen = moments(dataset.train_x, scale)
        if dataset.fill == "mean":
            _refuse_unknown_fill(dataset, seen.values)
            fill = _plain(seen.mean * scale)
        if mean is None or std is None:
            mean, std = _plain(np.nan_to_num(seen.mean)), _plain(_or_one(seen.std))
    return Preprocessing(scale, mean, std, fill, **targets)


def _constant_fill(dataset: Dataset) -> tuple[float, ...]:
    if dataset.fill in ("none", "mean"):
        return ()
    return (0.0 if dataset.fill == "zero" else float(dataset.fill),) * dataset.shape[0]


def _refuse_unknown_fill(dataset: Dataset, count: Vector) -> None:
    for channel in np.flatnonzero(count == 0):
        name = repr(dataset.feature_names[channel]) if dataset.feature_names else f"channel {channel}"
        raise UserError(
            f"dataset {dataset.name!r}: no training row has a value of {name}, so that its mean is unknown; remove it, "
            "or fill with zero or a number"
        )


def _moments(x: NDArray[Any], clients: Callable[[], Iterable[RowNumbers]], scale: float) -> Moments:
    """Adds up what clients would send: sums and counts of values, then sums of squared deviations."""
    total, count, squares = (np.zeros(x.shape[1]) for _ in range(3))
    for values in _chunks(x, clients(), scale):
        total += np.nansum(values, axis=(0, 2))
        count += (~np.isnan(values)).sum(axis=(0, 2))
    mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    for values in _chunks(x, clients(), scale):
        squares += np.nansum((values - mean[:, None]) ** 2, axis=(0, 2))
    return Moments(mean, np.sqrt(squares / np.maximum(count, 1)), count)


def _chunks(x: NDArray[Any], clients: Iterable[RowNumbers], scale: float) -> Iterator[NDArray[np.float64]]:
    """Yields the rows of one client after the other, some at a time: [n, C, values of a channel]."""
    for rows in clients:
        for first in range(0, len(rows), AT_ONCE):
            some = x[rows[first : first + AT_ONCE]].astype(np.float64)
            yield some.reshape(len(some), some.shape[1], -1) / scale


def _or_one(std: Vector) -> Vector:
    """Returns deviations with 1 for a channel that is the same in all rows, which then becomes 0."""
    return np.where(std > 1e-12, std, 1.0)


def _plain(values: Vector) -> tuple[float, ...]:
    return tuple(values.tolist())
