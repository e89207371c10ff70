"""Shared memory between processes: arrays in mapped files, and mailboxes for trees, methods and networks.

A mailbox puts the bytes of tensors into a file that both processes map; only their layout goes through a pipe, and the
reader sees the tensors where they lie.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
import weakref
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from idiolect.core.trees import Rows, Tree
from idiolect.engines.numpy_trees import ALIGNMENT, to_arrays, to_tensors
from idiolect.engines.process_pickling import dumped

__all__ = [
    "Mailbox",
    "Parcel",
    "file_behind",
    "mapped",
    "nameless_file",
    "shared_copy",
    "shared_empty",
]


class _MappedBlock(mmap.mmap):
    """Mapped memory that knows its file, which stays open as long as an array lies in it."""

    file: int


def shared_empty(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Returns what ``numpy.empty`` does, in memory that another process can map."""
    file = nameless_file()
    os.ftruncate(file, _size(shape, dtype))
    array = mapped(file, shape, dtype)
    os.close(file)
    return array


def shared_copy(array: NDArray[Any]) -> NDArray[Any]:
    """Returns the array itself if another process can map it, else a copy that can be mapped."""
    if file_behind(array) is not None:
        return array
    copy = shared_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def mapped(file: int, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Returns the array of this shape in a file."""
    block = _MappedBlock(file, _size(shape, dtype))
    block.file = os.dup(file)
    weakref.finalize(block, os.close, block.file)
    return np.frombuffer(block, dtype, prod(shape)).reshape(shape)


def file_behind(array: NDArray[Any]) -> int | None:
    """Returns the file that an array fills from its beginning; None for other memory, or a part of an array."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    block = base.obj if isinstance(base, memoryview) else None
    if isinstance(block, _MappedBlock) and _size(array.shape, array.dtype) == len(block):
        return block.file if array.flags.c_contiguous else None
    return None


def nameless_file() -> int:
    """Opens a file without a name: in memory if the system can, else in its temporary folder."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("idiolect")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _size(shape: tuple[int, ...], dtype: DTypeLike) -> int:
    """Returns the bytes of an array in whole pages, at least one page."""
    return max(1, -(-prod(shape) * np.dtype(dtype).itemsize // mmap.PAGESIZE)) * mmap.PAGESIZE


class Parcel(NamedTuple):
    """What a reader needs to find a value in a mailbox.

    Args:
        layout: the pickled value without the bytes of its arrays.
        places: offset and size in bytes of each array.
        size: of the whole mailbox.
        n_stacked: how many trees were put in as rows of one; None for any other value.
    """

    layout: bytes
    places: list[tuple[int, int]]
    size: int
    n_stacked: int | None = None


class Mailbox:
    """Holds one value at a time in shared memory, which grows as needed; a new value replaces the old one.

    Args:
        file: of a mailbox that another process has made; None makes a new mailbox.
    """

    def __init__(self, file: int | None = None) -> None:
        self.file = nameless_file() if file is None else file
        self._map: mmap.mmap | None = None

    def put(self, tree: Tree) -> Parcel:
        return self.put_anything(to_arrays(tree))

    def put_anything(self, value: Any) -> Parcel:
        """Puts in a value of any kind, functions and networks included."""
        buffers: list[pickle.PickleBuffer] = []
        layout = dumped(value, buffers.append)
        places, end = [], 0
        for buffer in buffers:
            size = buffer.raw().nbytes
            places.append((end, size))
            end += -(-size // ALIGNMENT) * ALIGNMENT
        room = self._room(end)
        for (offset, size), buffer in zip(places, buffers, strict=True):
            room[offset : offset + size] = np.frombuffer(buffer.raw(), np.uint8)
        return Parcel(layout, places, self._capacity())

    def put_all(self, trees: Sequence[Tree]) -> Parcel:
        """Puts in several trees; stacked trees stay stacked."""
        if isinstance(trees, Rows):
            return self.put(trees.stacked)._replace(n_stacked=len(trees))
        return self.put(list(trees))

    def view(self, parcel: Parcel) -> Any:
        """Returns the tree where it lies: valid until the next ``put``, and not to be written to."""
        return _read(parcel, self._room(parcel.size))

    def view_anything(self, parcel: Parcel) -> Any:
        """Returns what ``put_anything`` put in; its arrays lie in the mailbox."""
        return pickle.loads(parcel.layout, buffers=_slices(parcel, self._room(parcel.size)))

    def view_all(self, parcel: Parcel) -> Sequence[Any]:
        """Returns what ``put_all`` put in, where it lies: valid until the next ``put``, and not to be written to."""
        found: Sequence[Any] = self.view(parcel)
        return found if parcel.n_stacked is None else Rows(found, parcel.n_stacked)

    def take(self, parcel: Parcel) -> Any:
        """Returns a copy of the tree, all of it in one block of memory."""
        end = max((offset + size for offset, size in parcel.places), default=0)
        block = torch.empty(end, dtype=torch.uint8).numpy()
        block[:] = self._room(parcel.size)[:end]
        return _read(parcel, block)

    def close(self) -> None:
        self._map = None
        os.close(self.file)

    def _capacity(self) -> int:
        return len(self._map) if self._map is not None else 0

    def _room(self, size: int) -> NDArray[np.uint8]:
        """Returns the mailbox's memory, mapped anew if it is smaller than ``size``."""
        if size > self._capacity() or self._map is None:
            size = max(size, 2 * self._capacity(), mmap.PAGESIZE)
            size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            if os.fstat(self.file).st_size < size:
                os.ftruncate(self.file, size)
            self._map = mmap.mmap(self.file, size)
        return np.frombuffer(self._map, np.uint8)


def _read(parcel: Parcel, room: NDArray[np.uint8]) -> Any:
    return to_tensors(pickle.loads(parcel.layout, buffers=_slices(parcel, room)))


def _slices(parcel: Parcel, room: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    return [room[offset : offset + size] for offset, size in parcel.places]
