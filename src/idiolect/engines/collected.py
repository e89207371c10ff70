"""The answers of workers, put together in the order of the clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from idiolect.core.trees import Rows, tree_leaves, tree_map

__all__ = ["Collected"]


class Collected:
    """What is stacked is copied to its place once, and stays stacked."""

    def __init__(self, clients: Iterable[int]) -> None:
        self._place = {client: i for i, client in enumerate(clients)}
        self._stacked: Any = None
        self._alone: dict[int, Any] = {}

    def add(self, clients: Sequence[int], answers: Sequence[Any]) -> None:
        """Args:
        answers: of the clients; those of ``Rows`` may lie in memory that is written over later.
        """
        if not isinstance(answers, Rows):
            self._alone |= dict(zip(clients, answers, strict=True))
            return
        if self._stacked is None:
            self._stacked = tree_map(self._room, answers.stacked)
        places = [self._place[client] for client in clients]
        for room, rows in zip(tree_leaves(self._stacked), tree_leaves(answers.stacked), strict=True):
            room.numpy()[places] = rows.numpy()  # by one thread: other workers are still busy

    def all(self) -> Sequence[Any]:
        if not self._alone:
            return Rows(self._stacked, len(self._place))
        together = list(Rows(self._stacked, len(self._place))) if self._stacked is not None else []
        return [
            self._alone[client] if client in self._alone else together[i] for client, i in self._place.items()
        ]

    def _room(self, rows: Tensor) -> Tensor:
        return rows.new_empty(len(self._place), *rows.shape[1:])
