"""Shared memory between processes: arrays in mapped files, and mailboxes for trees, methods and networks.

A mailbox puts the bytes of tensors into a file that both processes map; only their layout goes through a pipe, and the
reader sees the tensors where they lie.  A method is a chain of functions made by other functions, and a user's own
functions may stand in a script, a notebook or a file that no process can import: such functions and classes are pickled
by value, all others by name.
"""

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
from numpy.typing import DTypeLike, NDArray
from torch import Tensor
from torch.nn import Module
from torch.nn.utils import parametrize

from idiolect.core.trees import Rows, Tree
from idiolect.engines.numpy_trees import ALIGNMENT, to_arrays, to_tensors

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
        layout = _dumped(value, buffers)
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


def _dumped(value: Any, buffers: list[pickle.PickleBuffer]) -> bytes:
    """Pickles a value for a fresh process; the memory of arrays and tensors is added to ``buffers``."""
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles tensors as arrays, and functions and classes by value where no other process can import them."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Tensor and _is_like_an_array(obj):
            return torch.from_numpy, (obj.numpy(),)
        if isinstance(obj, Module) and parametrize.is_parametrized(obj):
            return _parametrised, (type(obj).__bases__[0], dict(vars(obj)))
        if isinstance(obj, FunctionType | type):
            _register_by_value(obj.__module__)
        return super().reducer_override(obj)


def _parametrised(kind: type[Module], attributes: dict[str, Any]) -> Module:
    """Makes a module whose weights are computed, such as by weight_norm; torch pickles no such module itself."""
    module = kind.__new__(kind)
    vars(module).update(attributes)
    parametrize._inject_new_class(module)
    for name in attributes["_modules"]["parametrizations"]:
        parametrize._inject_property(module, name)
    return module


def _is_like_an_array(tensor: Tensor) -> bool:
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return plain and tensor.dtype != torch.bfloat16 and not (tensor.is_conj() or tensor.is_neg())


@cache
def _register_by_value(module: str | None) -> None:
    """Registers a module that is loaded here but that a process with the same path could not import."""
    if module is None or module == "__main__" or module not in sys.modules:
        return  # cloudpickle takes these by value
    root = module.partition(".")[0]
    if not any(finder.find_spec(root, None) for finder in sys.meta_path):
        cloudpickle.register_pickle_by_value(sys.modules[module])
