"""A growing set of clients of a known population, which a checkpoint stores as one bit per client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

import numpy as np
from numpy.typing import NDArray

__all__ = ["ClientSet"]


class ClientSet(Set[int]):
    """Clients that were added; none can be removed.

    >>> members = ClientSet(10, [3])
    >>> members.add([1, 3])
    >>> list(members), ClientSet.from_bits(10, members.bits()) == {1, 3}
    ([1, 3], True)
    """

    def __init__(self, population: int, clients: Iterable[int] = ()) -> None:
        self._there = np.zeros(population, bool)
        self.add(clients)

    @classmethod
    def from_bits(cls, population: int, bits: NDArray[np.uint8]) -> ClientSet:
        return cls(population, np.flatnonzero(np.unpackbits(bits, count=population)).tolist())

    def add(self, clients: Iterable[int]) -> None:
        self._there[list(clients)] = True

    def bits(self) -> NDArray[np.uint8]:
        return np.packbits(self._there)

    def __contains__(self, client: object) -> bool:
        return isinstance(client, int) and 0 <= client < len(self._there) and bool(self._there[client])

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._there).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self._there))
