"""What the server keeps of each client, where a method asks for it: one row by client in a store of the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from idiolect.core import Slot
from idiolect.core.trees import Rows, stack, tree_leaves
from idiolect.federation.client_set import ClientSet
from idiolect.federation.store import ByClient, Store

__all__ = ["KeptUploads"]

BLOCK = 256  # clients at most whose rows are read together where all are visited; changes no number


@dataclass
class KeptUploads:
    """What the server keeps of each client, for all parts together.

    Args:
        store: one row for each client, the rows of all parts in it.
        first: what ``init_kept`` says is kept of a client not heard from.

    Attributes:
        heard: the clients that the server has heard from.
    """

    store: Store
    first: dict[str, Slot]
    population: int
    heard: ClientSet = field(init=False)

    def __post_init__(self) -> None:
        self.heard = ClientSet(self.population)

    @classmethod
    def in_memory(cls, first: dict[str, Slot], population: int) -> KeptUploads:
        """Returns a store without a folder, which cannot be saved."""
        leaves = tree_leaves(first)
        device = leaves[0].device if leaves else "cpu"
        store = Store.in_memory(lambda client: first, population, [first], device)
        return cls(store, first, population)

    def of(self, part: str) -> KeptForPart:
        """Returns what is kept for one part."""
        return KeptForPart(self, part)

    def write(self, clients: Sequence[int], rows: dict[str, Slot]) -> None:
        """Keeps new rows of some clients, by part and stacked."""
        if rows:
            self.store.write(ByClient(clients, Rows(rows, len(clients))))
        self.heard.add(clients)

    def save(self) -> dict[str, Any]:
        """Brings all rows to the disk; returns what a checkpoint must hold to find them there."""
        return {"rows": self.store.save(), "heard": torch.from_numpy(self.heard.bits())}

    def state(self) -> dict[str, Any]:
        """Returns all rows themselves, for a checkpoint of a few clients."""
        heard = list(self.heard)
        return {"all": self.together(heard) if heard else {}, "heard": torch.from_numpy(self.heard.bits())}

    def restore(self, state: dict[str, Any]) -> None:
        """Brings back all rows as they were when ``save`` or ``state`` returned ``state``."""
        self.heard = ClientSet.from_bits(self.population, np.asarray(state["heard"]))
        if "rows" in state:
            self.store.restore(state["rows"])
        elif self.heard:
            self.write(list(self.heard), state["all"])

    def together(self, clients: Sequence[int]) -> dict[str, Slot]:
        """Returns the rows of some clients by part, stacked; a client that is named twice has two."""
        known = self.store.together(client for client in clients if client in self.heard)
        same = isinstance(known, ByClient) and list(known) == list(clients)
        trees: Any = known.values() if same else [known.get(client, self.first) for client in clients]
        whole: dict[str, Slot] = stack(trees)
        return whole


@dataclass(frozen=True)
class KeptForPart:
    """What the server keeps of each client for one part."""

    uploads: KeptUploads
    part: str

    @property
    def clients(self) -> list[int]:
        return list(self.uploads.heard)

    def rows(self, clients: Sequence[int]) -> Slot:
        found: Slot = self.uploads.together(list(clients)).get(self.part, {})
        return found

    def blocks(self) -> Iterator[tuple[list[int], Slot]]:
        clients, size = self.clients, self.uploads.store.at_once(BLOCK)
        for first in range(0, len(clients), size):
            some = clients[first : first + size]
            yield some, self.rows(some)
