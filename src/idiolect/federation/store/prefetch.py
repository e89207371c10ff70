"""Prefetch: reads rows from disk in a background thread while earlier clients train."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from idiolect.federation.store.cache import CachedRow

__all__ = ["RowPrefetcher"]


class RowPrefetcher:
    """Reads one list of rows at a time, each list in a thread of its own.

    Args:
        read: (client, memory for its row) -> the row; called in the thread, and only for clients whose rows nobody
            writes meanwhile.
    """

    def __init__(self, read: Callable[[int, Tensor], CachedRow], row_bytes: int) -> None:
        self._read = read
        self._row_bytes = row_bytes
        self._thread: threading.Thread | None = None
        self._found: dict[int, CachedRow] = {}
        self._wanted: set[int] = set()

    def start(self, clients: Sequence[int]) -> None:
        """Starts to read; rows of an earlier call that nobody took are dropped."""
        self.stop()
        if clients:
            self._wanted = set(clients)
            memory = torch.empty(len(clients), self._row_bytes, dtype=torch.uint8)
            self._thread = threading.Thread(target=self._run, args=(list(clients), memory), daemon=True)
            self._thread.start()

    def take(self, client: int) -> CachedRow | None:
        """Returns the row if it was requested, and waits until it is read."""
        if client not in self._wanted:
            return None
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._wanted.discard(client)
        return self._found.pop(client, None)

    def forget(self, client: int) -> None:
        """Drops a row that is about to be written, because what was read is out of date."""
        self._wanted.discard(client)
        self._found.pop(client, None)

    def stop(self) -> None:
        """Waits for the thread, and drops all rows."""
        self._wanted = set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._found = {}

    def _run(self, clients: list[int], memory: Tensor) -> None:
        for client, row in zip(clients, memory, strict=True):
            if client in self._wanted:
                with suppress(Exception):  # the reader of this row reads it again and gets the same error
                    self._found[client] = self._read(client, row)
