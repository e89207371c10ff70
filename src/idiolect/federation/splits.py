"""Splits a client's rows into training, validation and test parts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from idiolect.core.seeds import derive
from idiolect.errors import UserError
from idiolect.partition import RowNumbers

__all__ = ["ClientRows", "split_rows"]


class ClientRows(NamedTuple):
    """A client's rows of each split, as row numbers into the pool."""

    train: RowNumbers
    valid: RowNumbers
    test: RowNumbers


def split_rows(rows: RowNumbers, client: int, *, valid: float, test: float, seed: int) -> ClientRows:
    """Shuffles a client's rows and takes the test part first, then validation, then training.

    A part with a positive share gets at least one row.

    Args:
        valid, test: shares of the client's rows; training gets the rest.
    """
    order = np.random.default_rng(derive(seed, "split", client)).permutation(rows)
    n_test = max(int(test * len(rows) + 1e-9), 1) if test > 0 else 0
    n_valid = max(int(valid * len(rows) + 1e-9), 1) if valid > 0 else 0
    if len(rows) <= n_test + n_valid:
        raise UserError(
            f"client {client} holds {len(rows)} samples, too few for training beside {n_valid} for validation and "
            f"{n_test} for testing; use fewer clients or another partition"
        )
    return ClientRows(order[n_test + n_valid :], order[n_test : n_test + n_valid], order[:n_test])
