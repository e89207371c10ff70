"""The store of private state: one tree per client, created when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from idiolect.core.trees import Rows, Tree
from idiolect.errors import UserError
from idiolect.federation.memory_shelf import MemoryShelf
from idiolect.federation.row_format import RowFormat
from idiolect.federation.shelf import Shelf
from idiolect.federation.slot_index import Mark

__all__ = ["ByClient", "Store"]

GROUP_BYTES = 64 << 20  # rows packed at once; pieces of this size go back to the system when they are freed
CHUNK_BYTES = 64 << 20  # rows of all clients at a time
ON_DEVICE = 1 << 30  # both, where rows lie on a device


class ByClient(Mapping[int, Tree]):
    """Trees by client, left as they lie: stacked, if they are."""

    def __init__(self, clients: Sequence[int], trees: Sequence[Tree]) -> None:
        self._place, self._trees = {client: i for i, client in enumerate(clients)}, trees

    def __getitem__(self, client: int) -> Tree:
        return self._trees[self._place[client]]

    def __iter__(self) -> Iterator[int]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)

    def values(self) -> Sequence[Tree]:  # type: ignore[override]
        return self._trees

    def only(self, clients: Sequence[int]) -> ByClient:
        """Some of them, in this order; rows of a stack are copied, so that they stay stacked."""
        places = [self._place[client] for client in clients]
        trees = self._trees
        return ByClient(clients, trees.at(places) if isinstance(trees, Rows) else [trees[i] for i in places])


class Store:
    """Keeps what never leaves a client.

    Trees that come back are copies of their own, bit for bit what was written, whatever the shelf.

    Args:
        create: client -> its first private state; a client that was only looked at is not stored.
        shelf: where rows are kept.
        form: of the rows.
        device: where trees are computed on.
    """

    def __init__(
        self, create: Callable[[int], Tree], shelf: Shelf, form: RowFormat, device: torch.device | str = "cpu"
    ) -> None:
        self._create = create
        self._shelf = shelf
        self._form = form
        self._device = torch.device(device)

    @classmethod
    def in_memory(
        cls,
        create: Callable[[int], Tree],
        population: int,
        examples: Iterable[Tree],
        device: torch.device | str = "cpu",
    ) -> Store:
        """A store without a folder, which cannot be saved."""
        form = RowFormat(examples)
        return cls(create, MemoryShelf(form, population, device), form, device)

    def rows(self, clients: Iterable[int]) -> dict[int, Tree]:
        """Private state by client, those first seen included."""
        found = self.together(clients)
        return dict(zip(found, found.values(), strict=True))

    def together(self, clients: Iterable[int]) -> Mapping[int, Tree]:
        """What ``rows`` gives, stacked where it lies so."""
        clients = list(dict.fromkeys(clients))
        kept = [client for client in clients if client in self._shelf]
        trees = self._form.unpack(self._shelf.get(kept), self._device) if kept else []
        if isinstance(trees, Rows) and len(kept) == len(clients):
            return ByClient(clients, trees)
        found = dict(zip(kept, trees, strict=True))
        return {client: found[client] if client in found else self._create(client) for client in clients}

    def write(self, rows: Mapping[int, Tree]) -> None:
        clients, given = list(rows), rows.values()
        trees = given if isinstance(given, Rows) else list(given)
        size = max(1, self._room(GROUP_BYTES) // max(self._form.row_bytes, 1))
        for first in range(0, len(clients), size):
            group = slice(first, first + size)
            self._shelf.put(clients[group], self._form.pack(trees[group], self._shelf.device))

    def prefetch(self, clients: Iterable[int]) -> None:
        """These clients are asked for next: their rows are read while others train."""
        self._shelf.prefetch([client for client in clients if client in self._shelf])

    def gather(self) -> None:
        """Brings home what is elsewhere: of this store, nothing is."""

    def at_once(self, most: int, least: int = 1) -> int:
        """How many clients to ask for together where all are wanted: memory for ``least`` is there anyway."""
        return max(1, min(most, max(least, self._room(CHUNK_BYTES) // max(self._form.row_bytes, 1))))

    def save(self) -> dict[str, Tensor]:
        """Brings all rows to the disk; what a checkpoint must remember to find them there."""
        mark = {**self._shelf.save()._asdict(), "row_bytes": self._form.row_bytes}
        return {name: torch.tensor(value) for name, value in mark.items()}

    def saved(self) -> None:
        """The checkpoint that remembers the last ``save`` is on disk."""
        self._shelf.saved()

    def restore(self, state: dict[str, Tensor]) -> None:
        """All rows as they were when ``save`` gave ``state``."""
        mark = {name: int(value) for name, value in state.items() if isinstance(value, Tensor)}
        if mark.pop("row_bytes", None) != self._form.row_bytes or mark.keys() != set(Mark._fields):
            raise UserError(
                "the checkpoint's private state has another shape than this run's; start it afresh"
            )
        self._shelf.restore(Mark(**mark))

    def close(self) -> None:
        self._shelf.close()

    def __len__(self) -> int:
        return len(self._shelf)

    def _room(self, on_host: int) -> int:
        return on_host if self._shelf.device.type == "cpu" else ON_DEVICE
