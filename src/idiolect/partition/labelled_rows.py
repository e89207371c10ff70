"""The pool of labelled rows that a partition divides: checked labels, the rows of each class, and a random stream."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from idiolect.errors import UserError
from idiolect.partition.option_checks import check_whole
from idiolect.partition.partition import RowNumbers

__all__ = ["LabelPool", "open_pool"]


class LabelPool(NamedTuple):
    """n rows in C classes; a class is a label that occurs, and classes are in ascending order.

    `random` depends on the seed and on the partition's name only, so it shares no draws with any other use of
    the same seed.
    """

    partition: str
    n_rows: int
    classes: NDArray[np.int64]  # [C]
    rows_of_class: tuple[RowNumbers, ...]  # C arrays, each in the order of the data
    random: np.random.Generator

    @property
    def class_sizes(self) -> NDArray[np.int64]:
        """The number of rows n_c of each class, [C]."""
        return np.array([rows.size for rows in self.rows_of_class], dtype=np.int64)

    def shuffled(self) -> list[RowNumbers]:
        """Returns the rows of each class in random order."""
        return [self.random.permutation(rows) for rows in self.rows_of_class]


def open_pool(partition: str, labels: ArrayLike, n_clients: int, seed: int, least: int = 1) -> LabelPool:
    """Checks the arguments that every partition takes, and groups the rows by class.

    Args:
        least: the smallest `n_clients` allowed; 0 where 0 means all clients that the data have.
    """
    array = np.asarray(labels)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise UserError(
            f"{partition}: labels must be a flat, non-empty array of whole numbers,"
            f" not {array.dtype} of shape {array.shape}"
        )
    check_whole(partition, "n_clients", n_clients, least, array.size, "each client needs one of the samples")
    check_whole(partition, "seed", seed, 0)
    classes, class_of_row = np.unique(array, return_inverse=True)
    order = np.argsort(class_of_row, kind="stable").astype(np.int64)
    cuts = np.cumsum(np.bincount(class_of_row))[:-1]
    stream = (int(seed), *f"partition/{partition}".encode())
    return LabelPool(
        partition=partition,
        n_rows=array.size,
        classes=classes.astype(np.int64),
        rows_of_class=tuple(np.split(order, cuts)),
        random=np.random.default_rng(stream),
    )
