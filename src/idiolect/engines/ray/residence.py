"""Where private rows live with ``ray``: workers keep the newest, the driver keeps copies and a ledger of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from torch import Tensor

from idiolect.core import Tree
from idiolect.engines.ray.messages import RemoteCall, RowReceipt
from idiolect.federation import Store

if TYPE_CHECKING:
    from idiolect.engines.ray.engine import RayEngine

__all__ = ["LedgerEntry", "ResidentRows", "RowLedger"]

AT_ONCE = 256  # rows that are fetched together


class ResidentRows:
    """The private state of all clients; for a row that a worker keeps it gives a receipt.

    Every few shared models, and before a checkpoint, the rows that changed are copied to the driver's store.  These
    copies are never lost, and what came after them can be computed again.

    Args:
        home: the store of the driver.
    """

    def __init__(self, home: Store, engine: RayEngine) -> None:
        self._home, self._engine = home, engine
        self._away: dict[int, RowReceipt] = {}
        self._changed: set[int] = set()

    def rows(self, clients: Iterable[int]) -> dict[int, Tree]:
        clients = list(clients)
        here = self._home.rows(client for client in clients if client not in self._away)
        return {client: here[client] if client in here else self._away[client] for client in clients}

    def together(self, clients: Iterable[int]) -> dict[int, Tree]:
        return self.rows(clients)

    def write(self, rows: Mapping[int, Tree]) -> None:
        away = {client: row for client, row in rows.items() if isinstance(row, RowReceipt)}
        self._engine.release(self._away[client] for client in away if client in self._away)
        self._away |= away
        self._changed |= away.keys()
        self._home.write({client: row for client, row in rows.items() if client not in away})
        if self._engine.copy_is_due:
            self._copy()

    def prefetch(self, clients: Iterable[int]) -> None:
        self._home.prefetch(client for client in clients if client not in self._away)

    def at_once(self, most: int, least: int = 1) -> int:
        return self._home.at_once(most, least)

    def gather(self) -> None:
        self._copy()
        self._engine.release(self._away.values())
        self._away.clear()

    def save(self) -> dict[str, Tensor]:
        self._copy()
        return self._home.save()

    def saved(self) -> None:
        self._home.saved()

    def restore(self, state: dict[str, Tensor]) -> None:
        self._engine.release(self._away.values())
        self._away.clear()
        self._changed.clear()
        self._home.restore(state)

    def close(self) -> None:
        self._home.close()

    def __len__(self) -> int:
        return len(self._home)

    def _copy(self) -> None:
        """Copies the rows that changed to the driver's store; the workers keep them as well."""
        changed = iter(sorted(self._changed))
        while some := list(islice(changed, self.at_once(AT_ONCE))):
            receipts = {client: self._away[client] for client in some}
            self._home.write(self._engine.fetch(receipts))
            self._engine.copied(receipts.values(), lambda client: self._home.rows([client])[client])
        self._changed.clear()


@dataclass
class LedgerEntry:
    """One row: what ``calls`` make of the row that ``base`` returns.

    Args:
        owner: the worker that keeps the row; None if the row is lost.
        base: returns the last copy that the driver has.
    """

    client: int
    owner: int | None
    base: Callable[[], Tree]
    calls: tuple[RemoteCall, ...] = ()


@dataclass
class RowLedger:
    """Records by edition which worker keeps a row, and how the row is computed again if it is lost."""

    entries: dict[int, LedgerEntry] = field(default_factory=dict)
    _last: int = 0

    def new_edition(self) -> int:
        self._last += 1
        return self._last

    def lose(self, worker: int) -> int:
        """Marks the rows of a worker that died as lost; returns their number."""
        lost = [entry for entry in self.entries.values() if entry.owner == worker]
        for entry in lost:
            entry.owner = None
        return len(lost)

    def misplace(self, editions: Iterable[int]) -> None:
        """Marks rows as lost that could not be fetched from their owners."""
        for edition in editions:
            self.entries[edition].owner = None
