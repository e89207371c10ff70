"""Kernels that are launched before the one before has ended, where the GPU can do that.

Small kernels take less time than what lies between them.  One of ours after one of ours is on its multiprocessors
already when that ends; after another it is launched as the last blocks of that end.  It waits before it reads or writes
anything, and so ends after the one before: whoever waits for it has waited for both.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["follow", "overlap"]

HOPPER = (9, 0)


@triton.jit
def follow(OVERLAPS: tl.constexpr):
    """What the kernel before has written is there from now on, and the next may be launched."""
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@cache
def overlap(device: torch.device) -> dict[str, Any]:
    """What a kernel is launched with that begins with ``follow``; no other kernel may be."""
    can = torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= HOPPER
    return {"OVERLAPS": True, "launch_pdl": True} if can else {"OVERLAPS": False}
