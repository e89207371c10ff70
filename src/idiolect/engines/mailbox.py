"""Trees of tensors between processes through shared memory.

The tensors' bytes go into a file that both sides have mapped, once, and only their layout goes through a pipe;
the reader sees them where they lie.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from idiolect.core.trees import Rows, Tree
from idiolect.engines.arrays import ALIGNMENT, to_arrays, to_tensors
from idiolect.engines.by_value import dumped
from idiolect.engines.shared_memory import nameless_file

__all__ = ["Letter", "Mailbox"]


class Letter(NamedTuple):
    """What a reader needs to find a tree in the mailbox."""

    layout: bytes
    places: list[tuple[int, int]]  # (offset, bytes) of each tensor
    size: int  # of the whole mailbox
    n_stacked: int | None = None  # trees that were put in as rows of one


class Mailbox:
    """Room for one tree at a time; what is put in replaces what was there.  It grows as needed.

    Args:
        file: of a mailbox that another process has made; none makes a new one.
    """

    def __init__(self, file: int | None = None) -> None:
        self.file = nameless_file() if file is None else file
        self._map: mmap.mmap | None = None

    def put(self, tree: Tree) -> Letter:
        return self.put_anything(to_arrays(tree))

    def put_anything(self, value: Any) -> Letter:
        """A value of any kind, functions and networks included."""
        buffers: list[pickle.PickleBuffer] = []
        layout = dumped(value, buffers)
        places, end = [], 0
        for buffer in buffers:
            size = buffer.raw().nbytes
            places.append((end, size))
            end += -(-size // ALIGNMENT) * ALIGNMENT
        room = self._room(end)
        for (offset, size), buffer in zip(places, buffers, strict=True):
            room[offset : offset + size] = np.frombuffer(buffer.raw(), np.uint8)
        return Letter(layout, places, self._capacity())

    def look(self, letter: Letter) -> Any:
        """The tree where it lies: valid until the next ``put``, and not to be written to."""
        return _read(letter, self._room(letter.size))

    def look_at_anything(self, letter: Letter) -> Any:
        """What ``put_anything`` put in; its arrays lie in the mailbox."""
        return pickle.loads(letter.layout, buffers=_slices(letter, self._room(letter.size)))

    def put_all(self, trees: Sequence[Tree]) -> Letter:
        """Several trees, which stay stacked if they are."""
        if isinstance(trees, Rows):
            return self.put(trees.stacked)._replace(n_stacked=len(trees))
        return self.put(list(trees))

    def look_at_all(self, letter: Letter) -> Sequence[Any]:
        """What ``put_all`` put in, where it lies: valid until the next ``put``, and not to be written to."""
        found = self.look(letter)
        return found if letter.n_stacked is None else Rows(found, letter.n_stacked)

    def take(self, letter: Letter) -> Any:
        """A copy of the tree, all of it in one block of memory."""
        end = max((offset + size for offset, size in letter.places), default=0)
        block = torch.empty(end, dtype=torch.uint8).numpy()
        block[:] = self._room(letter.size)[:end]
        return _read(letter, block)

    def close(self) -> None:
        self._map = None
        os.close(self.file)

    def _capacity(self) -> int:
        return len(self._map) if self._map is not None else 0

    def _room(self, size: int) -> np.ndarray:
        if size > self._capacity() or self._map is None:
            size = max(size, 2 * self._capacity(), mmap.PAGESIZE)
            size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            if os.fstat(self.file).st_size < size:
                os.ftruncate(self.file, size)
            self._map = mmap.mmap(self.file, size)
        return np.frombuffer(self._map, np.uint8)


def _read(letter: Letter, room: np.ndarray) -> Any:
    return to_tensors(pickle.loads(letter.layout, buffers=_slices(letter, room)))


def _slices(letter: Letter, room: np.ndarray) -> list[np.ndarray]:
    return [room[offset : offset + size] for offset, size in letter.places]
