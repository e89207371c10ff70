"""Rows read in the background while the clients before them train."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from idiolect.federation.row_cache import Row

__all__ = ["ReadAhead"]


class ReadAhead:
    """One thread that lives as long as one reading.

    Args:
        read: (client, memory for its row) -> the row; called in the thread, and only for clients that nobody writes
            meanwhile.
    """

    def __init__(self, read: Callable[[int, Tensor], Row], row_bytes: int) -> None:
        self._read = read
        self._row_bytes = row_bytes
        self._thread: threading.Thread | None = None
        self._found: dict[int, Row] = {}
        self._wanted: set[int] = set()

    def start(self, clients: Sequence[int]) -> None:
        """Begins to read; rows of an earlier call that nobody took are dropped."""
        self.stop()
        if clients:
            self._wanted = set(clients)
            memory = torch.empty(len(clients), self._row_bytes, dtype=torch.uint8)
            self._thread = threading.Thread(target=self._run, args=(list(clients), memory), daemon=True)
            self._thread.start()

    def take(self, client: int) -> Row | None:
        """The row if it was asked for; waits until it is there."""
        if client not in self._wanted:
            return None
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._wanted.discard(client)
        return self._found.pop(client, None)

    def forget(self, client: int) -> None:
        """The row is written anew: what was read of it is out of date."""
        self._wanted.discard(client)
        self._found.pop(client, None)

    def stop(self) -> None:
        self._wanted = set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._found = {}

    def _run(self, clients: list[int], memory: Tensor) -> None:
        for client, row in zip(clients, memory, strict=True):
            if client in self._wanted:
                with suppress(Exception):  # whoever needs the row reads it and meets the same
                    self._found[client] = self._read(client, row)
