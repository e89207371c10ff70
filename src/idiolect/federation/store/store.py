"""The store of private state: one tree per client, created when it is first asked for.

``Store`` packs trees into rows of bytes; a ``RowStorage`` keeps the rows, in memory or on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from idiolect.core.trees import Rows, Tree
from idiolect.errors import UserError
from idiolect.federation.store.memory import MemoryStorage
from idiolect.federation.store.row_format import PackedRows, RowFormat
from idiolect.federation.store.row_generations import GenerationMark

__all__ = ["ByClient", "RowStorage", "Store"]

GROUP_BYTES = 64 << 20  # rows packed at once; the allocator returns blocks of this size to the system
CHUNK_BYTES = 64 << 20  # rows read at once when every client is wanted
ON_DEVICE = 1 << 30  # replaces both limits when rows are kept on a device


class RowStorage(Protocol):
    """Keeps packed rows by client: what a store in memory and a store on disk do differently."""

    device: torch.device  # of the rows it takes and returns

    def __contains__(self, client: int) -> bool: ...

    def __len__(self) -> int: ...

    def get(self, clients: Sequence[int]) -> PackedRows:
        """Returns fresh copies of rows that are stored."""

    def put(self, clients: Sequence[int], packed: PackedRows) -> None: ...

    def prefetch(self, clients: Sequence[int]) -> None:
        """Announces the rows that are read next."""

    def save(self) -> GenerationMark:
        """Writes all rows to disk, and returns the mark that a checkpoint remembers."""

    def saved(self) -> None:
        """Announces that the checkpoint with the last mark is on disk."""

    def check(self, mark: GenerationMark) -> None:
        """Reads every row that the checkpoint with this mark knows; raises ``UserError`` where one is damaged."""

    def restore(self, mark: GenerationMark) -> None:
        """Brings back the rows as they were at the checkpoint with this mark."""

    def close(self) -> None: ...


class ByClient(Mapping[int, Tree]):
    """Trees by client, which stay stacked if they are given as a stack."""

    def __init__(self, clients: Sequence[int], trees: Sequence[Tree]) -> None:
        self._place, self._trees = {client: i for i, client in enumerate(clients)}, trees

    def __getitem__(self, client: int) -> Tree:
        return self._trees[self._place[client]]

    def __iter__(self) -> Iterator[int]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)

    def values(self) -> Sequence[Tree]:  # type: ignore[override]  # a stack is a sequence and no view
        return self._trees

    def only(self, clients: Sequence[int]) -> ByClient:
        """Returns the trees of these clients in this order; rows of a stack are copied into a new stack."""
        places = [self._place[client] for client in clients]
        trees = self._trees
        return ByClient(clients, trees.at(places) if isinstance(trees, Rows) else [trees[i] for i in places])


class Store:
    """Keeps the state that never leaves a client.

    Trees that it returns are copies, bit for bit what was written, wherever the rows are kept.

    Args:
        create: client -> its first private state; a client that was only read is not stored.
        storage: where rows are kept.
        form: how trees become rows.
        device: where returned trees live.
    """

    def __init__(
        self,
        create: Callable[[int], Tree],
        storage: RowStorage,
        form: RowFormat,
        device: torch.device | str = "cpu",
    ) -> None:
        self._create = create
        self._storage = storage
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
        """Returns a store without a folder, which cannot be saved."""
        form = RowFormat(examples)
        return cls(create, MemoryStorage(form, population, device), form, device)

    def rows(self, clients: Iterable[int]) -> dict[int, Tree]:
        """Returns private state by client; clients seen for the first time get their first state."""
        found = self.together(clients)
        return dict(zip(found, found.values(), strict=True))

    def together(self, clients: Iterable[int]) -> Mapping[int, Tree]:
        """Returns what ``rows`` returns, as one stack where all rows have the same layout."""
        clients = list(dict.fromkeys(clients))
        kept = [client for client in clients if client in self._storage]
        trees = self._form.unpack(self._storage.get(kept), self._device) if kept else []
        if isinstance(trees, Rows) and len(kept) == len(clients):
            return ByClient(clients, trees)
        found = dict(zip(kept, trees, strict=True))
        return {client: found[client] if client in found else self._create(client) for client in clients}

    def write(self, rows: Mapping[int, Tree]) -> None:
        """Stores private state by client."""
        clients, given = list(rows), rows.values()
        trees = given if isinstance(given, Rows) else list(given)
        size = max(1, self._limit(GROUP_BYTES) // max(self._form.row_bytes, 1))
        for first in range(0, len(clients), size):
            group = slice(first, first + size)
            self._storage.put(clients[group], self._form.pack(trees[group], self._storage.device))

    def prefetch(self, clients: Iterable[int]) -> None:
        """Starts to read the rows of clients that come next, while others train."""
        self._storage.prefetch([client for client in clients if client in self._storage])

    def gather(self) -> None:
        """Brings home rows that are kept elsewhere: this store has none."""

    def at_once(self, most: int, least: int = 1) -> int:
        """Returns how many clients to read together when all are wanted.

        Args:
            least: clients for whom memory is available in any case.
        """
        return max(1, min(most, max(least, self._limit(CHUNK_BYTES) // max(self._form.row_bytes, 1))))

    def save(self) -> dict[str, Tensor]:
        """Writes all rows to disk, and returns what a checkpoint must remember to find them."""
        mark = {**self._storage.save()._asdict(), "row_bytes": self._form.row_bytes}
        return {name: torch.tensor(value) for name, value in mark.items()}

    def saved(self) -> None:
        """Announces that the checkpoint with the last ``save`` is on disk."""
        self._storage.saved()

    def restore(self, state: dict[str, Tensor]) -> None:
        """Brings back all rows as they were when ``save`` returned ``state``."""
        self._storage.restore(self._mark_of(state))

    def check(self, state: dict[str, Tensor]) -> None:
        """Reads all rows as they were when ``save`` returned ``state``; raises ``UserError`` where one is damaged."""
        self._storage.check(self._mark_of(state))

    def _mark_of(self, state: dict[str, Tensor]) -> GenerationMark:
        saved = {name: int(value) for name, value in state.items() if isinstance(value, Tensor)}
        row_bytes, mark = saved.pop("row_bytes", None), GenerationMark.of(saved)
        if row_bytes != self._form.row_bytes or mark is None:
            raise UserError(
                "the checkpoint's private state has another shape than this run's; start it afresh"
            )
        return mark

    def close(self) -> None:
        self._storage.close()

    def __len__(self) -> int:
        return len(self._storage)

    def _limit(self, on_host: int) -> int:
        return on_host if self._storage.device.type == "cpu" else ON_DEVICE
