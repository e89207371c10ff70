"""The store of private state: one tree per client, created when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from idiolect.core.trees import Tree

__all__ = ["Store"]


class Store:
    """Keeps what never leaves a client.

    Args:
        create: client -> its first private state; a client that was only looked at is not stored.
    """

    def __init__(self, create: Callable[[int], Tree]) -> None:
        self._create = create
        self._kept: dict[int, Tree] = {}

    def rows(self, clients: Iterable[int]) -> dict[int, Tree]:
        return {c: self._kept[c] if c in self._kept else self._create(c) for c in clients}

    def write(self, rows: dict[int, Tree]) -> None:
        self._kept.update(rows)

    def state(self) -> dict[str, Tree]:
        """Everything kept, for a checkpoint."""
        return {str(client): tree for client, tree in sorted(self._kept.items())}

    def restore(self, state: dict[str, Tree]) -> None:
        self._kept = {int(client): tree for client, tree in state.items()}

    def __len__(self) -> int:
        return len(self._kept)
