"""Who keeps which row, and how a row that is lost comes about again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from idiolect.core import PrivateState
from idiolect.engines.cluster.errand import Step

__all__ = ["Entry", "Ledger"]


@dataclass
class Entry:
    """One row: what ``base`` gives after ``steps``.

    Args:
        owner: the worker that keeps it; None when it is lost.
        base: the row as the driver knows it.
    """

    client: int
    owner: int | None
    base: Callable[[], PrivateState]
    steps: tuple[Step, ...] = ()


@dataclass
class Ledger:
    """Rows by edition."""

    entries: dict[int, Entry] = field(default_factory=dict)
    _last: int = 0

    def new_edition(self) -> int:
        self._last += 1
        return self._last

    def lose(self, worker: int) -> int:
        """A worker is gone; how many rows with it."""
        lost = [entry for entry in self.entries.values() if entry.owner == worker]
        for entry in lost:
            entry.owner = None
        return len(lost)

    def misplace(self, editions: Iterable[int]) -> None:
        """These rows could not be had from their owners."""
        for edition in editions:
            self.entries[edition].owner = None
