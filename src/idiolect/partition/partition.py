"""The result of a partition: the rows of each client, and the rows that were dropped with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from idiolect.errors import UserError

__all__ = ["Partition", "RowNumbers"]

RowNumbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Partition:
    """Disjoint rows per client, which together with the dropped rows are exactly 0, ..., n - 1.

    The rows of a client are kept in ascending order, read-only. Their order has no meaning: they
    are shuffled before they are split into train and test parts.

    Args:
        clients: the rows of each client; none may be empty.
        dropped: reason -> rows that no client holds for that reason; reasons without rows are left out.
        removed: number a client had when drawn -> rows it had, for the clients taken out (their rows are in
            `dropped`); the remaining clients are renumbered in order.
        ids: the id of each client, where the data name their owners.
    """

    clients: tuple[RowNumbers, ...]
    dropped: dict[str, RowNumbers] = field(default_factory=dict)
    removed: dict[int, int] = field(default_factory=dict)
    ids: tuple[int | str, ...] = ()

    def __post_init__(self) -> None:
        clients = tuple(_row_array(f"client {number}", rows) for number, rows in enumerate(self.clients))
        dropped = {reason: _row_array(f"dropped {reason!r}", rows) for reason, rows in self.dropped.items()}
        object.__setattr__(self, "clients", clients)
        object.__setattr__(self, "dropped", {reason: rows for reason, rows in dropped.items() if rows.size})
        object.__setattr__(self, "removed", dict(self.removed))
        _check_clients(clients, self.ids)
        _check_coverage([*clients, *dropped.values()])

    @property
    def n_rows(self) -> int:
        """The number n of all rows, held or dropped."""
        return sum(rows.size for rows in (*self.clients, *self.dropped.values()))

    def report(self, labels: ArrayLike) -> dict[str, Any]:
        """Returns plain numbers for a run's manifest: sizes, classes per client, what was dropped and why."""
        label_of_row = np.asarray(labels)
        if label_of_row.shape != (self.n_rows,):
            raise UserError(
                f"the partition covers {self.n_rows} rows but labels has shape {label_of_row.shape};"
                " pass the labels that were partitioned"
            )
        named = {"ids": list(self.ids)} if self.ids else {}
        return named | {
            "n_rows": self.n_rows,
            "n_clients": len(self.clients),
            "samples_per_client": _spread([rows.size for rows in self.clients]),
            "classes_per_client": _spread([np.unique(label_of_row[rows]).size for rows in self.clients]),
            "dropped": {reason: int(rows.size) for reason, rows in self.dropped.items()},
            "removed_clients": [{"client": number, "samples": size} for number, size in self.removed.items()],
        }


def _row_array(holder: str, rows: ArrayLike) -> RowNumbers:
    """Returns a sorted, read-only copy."""
    array = np.asarray(rows)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UserError(
            f"{holder} of a partition must be a flat array of whole row numbers, not {array.dtype}"
        )
    ascending = np.sort(array.astype(np.int64))
    ascending.setflags(write=False)
    return ascending


def _check_clients(clients: tuple[RowNumbers, ...], ids: tuple[int | str, ...]) -> None:
    if not clients:
        raise UserError("a partition needs at least one client; it has none")
    if ids and len(ids) != len(clients):
        raise UserError(
            f"a partition of {len(clients)} clients has {len(ids)} ids; give one for each or none"
        )
    empty = [number for number, rows in enumerate(clients) if rows.size == 0]
    if empty:
        raise UserError(f"client {empty[0]} of the partition holds no rows; use fewer clients or more data")


def _check_coverage(groups: list[RowNumbers]) -> None:
    """Refuses groups that do not hold every row from 0 to n - 1 exactly once."""
    rows = np.sort(np.concatenate(groups))
    wrong = np.flatnonzero(rows != np.arange(rows.size))
    if wrong.size == 0:
        return
    expected, found = int(wrong[0]), int(rows[wrong[0]])
    if found > expected:
        state = f"row {expected} is in none"
    else:
        state = f"row {found} is negative" if found < 0 else f"row {found} is there twice"
    raise UserError(
        f"clients and dropped of a partition must hold each row once; {state}, mend the row lists"
    )


def _spread(values: list[int]) -> dict[str, float]:
    return {"min": int(min(values)), "median": float(np.median(values)), "max": int(max(values))}
