"""Splits a client's rows into training, validation and test parts: at random, as given, by time or by group."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from idiolect.core.seeds import derive
from idiolect.data import SPLITS, Dataset
from idiolect.errors import UserError
from idiolect.partition import RowNumbers

__all__ = ["ClientRows", "part_size", "split_client", "split_rows"]


class ClientRows(NamedTuple):
    """A client's rows of each split, as row numbers into the pool."""

    train: RowNumbers
    valid: RowNumbers
    test: RowNumbers


def split_rows(
    rows: RowNumbers, client: int, *, valid: float, test: float, seed: int, name: str = ""
) -> ClientRows:
    """Shuffles a client's rows and takes the test part first, then validation, then training.

    A part with a positive share gets at least one row.

    Args:
        valid, test: shares of the client's rows; training gets the rest.
        name: what an error calls the client; its number by default.
    """
    order = np.random.default_rng(derive(seed, "split", client)).permutation(rows)
    n_valid, n_test = _part_sizes(len(rows), valid, test, name or f"client {client}")
    return ClientRows(order[n_test + n_valid :], order[n_test : n_test + n_valid], order[:n_test])


def split_client(
    dataset: Dataset, rows: RowNumbers, client: int, *, valid: float, test: float, seed: int, name: str
) -> ClientRows:
    """Splits a client's training rows of a dataset as the dataset says: as given, by time, by group, or at random.

    Args:
        valid, test: shares of the client's rows; a split that is given ignores ``test``, and ``valid`` too where it
            names validation rows.
        name: what an error calls the client.
    """
    if dataset.splits is not None:
        has_valid = bool((dataset.splits == SPLITS.index("valid")).any())
        return _as_given(rows, dataset.splits[rows], client, 0.0 if has_valid else valid, seed, name)
    if dataset.times is not None:
        return _by_time(rows, dataset.times[rows], valid, test, name)
    if dataset.groups is not None:
        return _by_group(rows, dataset.groups[rows], client, valid, test, seed, name)
    return split_rows(rows, client, valid=valid, test=test, seed=seed, name=name)


def _as_given(
    rows: RowNumbers, split: NDArray[np.int8], client: int, valid: float, seed: int, name: str
) -> ClientRows:
    """Takes the rows of each split, and holds the share ``valid`` of the training rows out where it is above 0."""
    train, held, test = (rows[split == place] for place in range(len(SPLITS)))
    for part, found in (("training", train), ("test", test)):
        if not len(found):
            raise UserError(
                f"the given split leaves {name} without {part} rows; give it some, or leave the client out"
            )
    if valid <= 0:
        return ClientRows(train, held, test)
    again = split_rows(train, client, valid=valid, test=0.0, seed=seed, name=name)
    return ClientRows(again.train, again.valid, test)


def _by_time(
    rows: RowNumbers, times: NDArray[np.generic], valid: float, test: float, name: str
) -> ClientRows:
    """Takes a client's last rows as its test part, those before them for validation, and the first for training."""
    n_valid, n_test = _part_sizes(len(rows), valid, test, name)
    order = rows[np.argsort(times, kind="stable")]
    n_train = len(rows) - n_valid - n_test
    return ClientRows(order[:n_train], order[n_train : n_train + n_valid], order[n_train + n_valid :])


def _by_group(
    rows: RowNumbers,
    groups: NDArray[np.integer],
    client: int,
    valid: float,
    test: float,
    seed: int,
    name: str,
) -> ClientRows:
    """Shuffles a client's groups and gives whole groups to the test part, then to validation, then to training.

    A part takes groups until it has its share of the rows, but leaves one group for each part that follows.
    """
    known = np.unique(groups)
    shares = [share for share in (test, valid) if share > 0]
    if len(known) <= len(shares):
        raise UserError(
            f"{name} has {len(known)} group{'s' if len(known) > 1 else ''}, too few for {len(shares) + 1} splits that "
            "share none; use finer groups, or leave the client out"
        )
    order = np.random.default_rng(derive(seed, "split", client)).permutation(known)
    size_of = dict(zip(*np.unique(groups, return_counts=True), strict=True))
    taken, first = {"test": order[:0], "valid": order[:0]}, 0
    for part, share in (("test", test), ("valid", valid)):
        if share <= 0:
            continue
        later = 1 + (part == "test" and valid > 0)
        last, held = first, 0
        while last == first or (held < share * len(rows) and last < len(order) - later):
            held += int(size_of[order[last]])
            last += 1
        taken[part], first = order[first:last], last
    train, held_out, tested = (
        rows[np.isin(groups, part)] for part in (order[first:], taken["valid"], taken["test"])
    )
    return ClientRows(train, held_out, tested)


def part_size(count: int, share: float) -> int:
    """Returns how many of a client's rows a part with this share gets; at least one where the share is positive."""
    return max(int(share * count + 1e-9), 1) if share > 0 else 0


def _part_sizes(count: int, valid: float, test: float, name: str) -> tuple[int, int]:
    """Returns the sizes of the validation and the test part; a part with a positive share gets at least one row."""
    n_test, n_valid = part_size(count, test), part_size(count, valid)
    if count <= n_test + n_valid:
        named = name.endswith("'")  # by the data, so that no partition can help
        raise UserError(
            f"{name} holds {count} samples, too few for training beside {n_valid} for validation and "
            f"{n_test} for testing; "
            + ("give it more, or leave the client out" if named else "use fewer clients or another partition")
        )
    return n_valid, n_test
