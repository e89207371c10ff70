"""Arrays in memory that other processes can map, by the file behind it."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from math import prod

import numpy as np
from numpy.typing import DTypeLike

__all__ = ["file_behind", "mapped", "nameless_file", "shared_copy", "shared_empty"]


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
