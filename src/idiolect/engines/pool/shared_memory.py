"""Shared memory between processes: arrays, and mailboxes through which trees and pickled values travel."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import sys
import tempfile
import weakref
from collections.abc import Sequence
from functools import cache
from math import prod
from types import FunctionType
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor

from idiolect.core.trees import Rows, Tree
from idiolect.engines.numpy_trees import ALIGNMENT, to_arrays, to_tensors

__all__ = [
    "Letter",
    "Mailbox",
    "dumped",
    "file_behind",
    "mapped",
    "nameless_file",
    "shared_copy",
    "shared_empty",
]


class _Block(mmap.mmap):
    """Memory with the number of its file, which stays open as long as an array lies in it."""

    file: int


def shared_empty(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """As ``numpy.empty``, in memory that another process can map."""
    file = nameless_file()
    os.ftruncate(file, _size(shape, dtype))
    array = mapped(file, shape, dtype)
    os.close(file)
    return array


def shared_copy(array: np.ndarray) -> np.ndarray:
    """The array itself where it lies in such memory, else a copy that does."""
    if file_behind(array) is not None:
        return array
    copy = shared_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def mapped(file: int, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """The array of this shape in a file."""
    block = _Block(file, _size(shape, dtype))
    block.file = os.dup(file)
    weakref.finalize(block, os.close, block.file)
    return np.frombuffer(block, dtype, prod(shape)).reshape(shape)


def file_behind(array: np.ndarray) -> int | None:
    """The file that an array fills from its beginning; None for an array in other memory, or a part of one."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base  # type: ignore[assignment]
    block = base.obj if isinstance(base, memoryview) else None
    whole = isinstance(block, _Block) and _size(array.shape, array.dtype) == len(block)
    return block.file if whole and array.flags.c_contiguous else None


def nameless_file() -> int:
    """In memory where the system can, else in its temporary folder."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("idiolect")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _size(shape: tuple[int, ...], dtype: DTypeLike) -> int:
    """Bytes in whole pages, of which there is at least one."""
    return max(1, -(-prod(shape) * np.dtype(dtype).itemsize // mmap.PAGESIZE)) * mmap.PAGESIZE


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

    def look(self, letter: Letter) -> Tree:
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

    def look_at_all(self, letter: Letter) -> Sequence[Tree]:
        """What ``put_all`` put in, where it lies: valid until the next ``put``, and not to be written to."""
        found = self.look(letter)
        return found if letter.n_stacked is None else Rows(found, letter.n_stacked)

    def take(self, letter: Letter) -> Tree:
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


def _read(letter: Letter, room: np.ndarray) -> Tree:
    return to_tensors(pickle.loads(letter.layout, buffers=_slices(letter, room)))


def _slices(letter: Letter, room: np.ndarray) -> list[np.ndarray]:
    return [room[offset : offset + size] for offset, size in letter.places]


def dumped(value: Any, buffers: list[pickle.PickleBuffer]) -> bytes:
    """What ``pickle.loads`` makes an equal value of; the memory of arrays and tensors is put into ``buffers``."""
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Tensor and _is_like_an_array(obj):
            return torch.from_numpy, (obj.numpy(),)
        if isinstance(obj, FunctionType | type):
            _travel_by_value(obj.__module__)
        return super().reducer_override(obj)


def _is_like_an_array(tensor: Tensor) -> bool:
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return plain and tensor.dtype != torch.bfloat16 and not (tensor.is_conj() or tensor.is_neg())


@cache
def _travel_by_value(module: str | None) -> None:
    """Registers a module that is here but that a process with the same path could not import."""
    if module is None or module == "__main__" or module not in sys.modules:
        return  # cloudpickle takes these by value
    root = module.partition(".")[0]
    if not any(finder.find_spec(root, None) for finder in sys.meta_path):
        cloudpickle.register_pickle_by_value(sys.modules[module])
