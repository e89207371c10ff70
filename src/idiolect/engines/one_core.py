"""A process that shall use one core well."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

import torch

__all__ = ["keep_freed_memory", "settle_on_one_core"]

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, LARGEST = -1, -3, 2**31 - 1


def settle_on_one_core() -> None:
    """One intra-op thread, and memory that is re-used."""
    torch.set_num_threads(1)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Tells glibc to re-use large blocks, here and in forks: one given back costs a page fault for every 4 kB anew."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(M_MMAP_THRESHOLD, LARGEST)
            mallopt(M_TRIM_THRESHOLD, LARGEST)
