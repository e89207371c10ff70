"""A process that shall use one core well."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

__all__ = ["give_way", "keep_freed_memory", "settle_on_one_core", "threads_for"]

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, LARGEST = -1, -3, 2**31 - 1
LITTLE = 1 << 22  # scalars that one thread reads in milliseconds


def settle_on_one_core() -> None:
    """One intra-op thread, and memory that is re-used."""
    torch.set_num_threads(1)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Tells glibc to re-use large blocks: one given back costs a page fault for every 4 kB anew."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(M_MMAP_THRESHOLD, LARGEST)
            mallopt(M_TRIM_THRESHOLD, LARGEST)


def give_way() -> None:
    """Lets whoever wakes this process go on: a parent would else wait milliseconds before it can wake the next."""
    if sys.platform == "linux" and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@contextmanager
def threads_for(n_scalars: int) -> Iterator[None]:
    """One thread where there is little to do: others have to be woken, and keep a core for milliseconds afterwards."""
    before = torch.get_num_threads()
    if n_scalars < LITTLE:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
