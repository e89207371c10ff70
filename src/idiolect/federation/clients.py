"""The rows of all clients in one array, so that a client costs bytes and not objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from idiolect.federation.splits import ClientRows
from idiolect.partition import RowNumbers

__all__ = ["Clients"]

AT_ONCE = 4096  # small arrays that are concatenated at a time


class Clients(Sequence[ClientRows]):
    """Behaves as a tuple of ``ClientRows``.

    >>> one = ClientRows(train=np.array([4, 2]), valid=np.array([7]), test=np.array([0]))
    >>> clients = Clients([one, one])
    >>> clients[1].train.tolist(), len(clients), clients.sizes("train").tolist()
    ([4, 2], 2, [2, 2])
    """

    def __init__(self, clients: Iterable[ClientRows]) -> None:
        blocks: list[RowNumbers] = [np.empty(0, np.int64)]
        sizes: list[int] = []
        some: list[RowNumbers] = []
        for client in clients:
            some.extend(client)
            sizes.extend(map(len, client))
            if len(some) > AT_ONCE:
                blocks.append(np.concatenate(some))
                some = []
        self._rows = np.concatenate(blocks + some)
        self._ends = np.cumsum([0, *sizes])  # client c: train, valid and test end at 3c + 1, 3c + 2, 3c + 3

    def __len__(self) -> int:
        return len(self._ends) // 3

    @overload
    def __getitem__(self, client: int) -> ClientRows: ...

    @overload
    def __getitem__(self, client: slice) -> tuple[ClientRows, ...]: ...

    def __getitem__(self, client: int | slice) -> ClientRows | tuple[ClientRows, ...]:
        if isinstance(client, slice):
            return tuple(self[c] for c in range(*client.indices(len(self))))
        if not -len(self) <= client < len(self):
            raise IndexError(f"client {client} of {len(self)}")
        first = 3 * (client % len(self))
        return ClientRows(
            *(self._rows[self._ends[first + part] : self._ends[first + part + 1]] for part in range(3))
        )

    def __iter__(self) -> Iterator[ClientRows]:
        return (self[client] for client in range(len(self)))

    def sizes(self, split: str) -> NDArray[np.int64]:
        """Returns the number of rows of each client in a split: [clients]."""
        part = ClientRows._fields.index(split)
        sizes: NDArray[np.int64] = self._ends[part + 1 :: 3] - self._ends[part::3][: len(self)]
        return sizes.astype(np.int64)

    def class_counts(self, y: NDArray[np.int64], n_classes: int, split: str) -> NDArray[np.int64]:
        """Counts the labels ``y`` of each client's rows in a split: [clients, classes]."""
        part = ClientRows._fields.index(split)
        sizes = np.diff(self._ends)
        held = np.zeros(len(sizes), bool)
        held[part::3] = True
        label = y[self._rows[np.repeat(held, sizes)]]
        owner = np.repeat(np.arange(len(self)), sizes[part::3])
        counts = np.bincount(owner * n_classes + label, minlength=len(self) * n_classes)
        return counts.reshape(len(self), n_classes)
