"""Tunes a process for a CPU core: the number of threads, the memory allocator and the scheduler."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

__all__ = ["keep_freed_memory", "threads_for", "tune_for_one_core", "yield_to_waker"]

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, LARGEST = -1, -3, 2**31 - 1
LITTLE = 1 << 22  # scalars that one thread reads in milliseconds


def tune_for_one_core() -> None:
    """Limits PyTorch to one intra-op thread and keeps freed memory for re-use."""
    torch.set_num_threads(1)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Tells glibc to re-use large blocks; a block that goes back to the system costs a page fault for every 4 kB."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(M_MMAP_THRESHOLD, LARGEST)
            mallopt(M_TRIM_THRESHOLD, LARGEST)


def yield_to_waker() -> None:
    """Keeps this process from pre-empting the process that wakes it.

    A parent would otherwise wait milliseconds before it can wake its next worker.
    """
    if sys.platform == "linux" and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@contextmanager
def threads_for(n_scalars: int) -> Iterator[None]:
    """Uses one thread where there is little to compute.

    Other threads must be woken, and each occupies a core for milliseconds afterwards.
    """
    before = torch.get_num_threads()
    if n_scalars < LITTLE:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
