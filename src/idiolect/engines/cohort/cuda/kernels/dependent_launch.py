"""Overlapping kernels: a kernel is launched before the previous one has ended (programmatic dependent launch).

Small kernels take less time than the gaps between them.  A kernel of ours that follows another of ours is on its
multiprocessors already when that one ends; one that follows any other kernel is launched while the last blocks of that
kernel end.  It waits before it reads or writes anything, so that it ends after the previous kernel, and waiting for it
is waiting for both.
"""

# The language of Triton kernels has no types:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["follow", "overlap"]

HOPPER = (9, 0)  # compute capability of the first GPUs that can overlap kernels so


@triton.jit
def follow(OVERLAPS: tl.constexpr):
    """Waits for what the previous kernel writes, and allows the next to be launched."""
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@cache
def overlap(device: torch.device) -> dict[str, Any]:
    """Returns the launch options of a kernel that begins with ``follow``; no other kernel may be launched with them."""
    can = torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= HOPPER
    return {"OVERLAPS": True, "launch_pdl": True} if can else {"OVERLAPS": False}
