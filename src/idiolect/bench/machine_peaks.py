"""The machine that a bench runs on: its description, its load, and its peak rates of multiplying and copying."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from idiolect.bench.roofline import Peaks

__all__ = ["cores", "cuda_peak", "describe_machine", "measure_peaks", "synchronise"]

REPEATS = 15


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def describe_machine(device: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _processor(),
        "cores": cores(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load_at_start": os.getloadavg()[0],
    }
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
    return found


def _processor() -> str:
    try:
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def synchronise(device: str) -> None:
    """Waits until the device has finished all its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def cuda_peak(device: str) -> int | None:
    """Returns the peak bytes of GPU memory that tensors of this process have used."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else None


def measure_peaks(dtype: torch.dtype, device: str) -> Peaks:
    """Returns the best rates of many large matrix products and copies.

    On a CPU it also measures one thread and multiplies by the cores, because on a shared machine one thread gets a
    core to itself more often than all threads do.  On a GPU, float32 products use TF32 if torch's convolutions do.
    """
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32
        return _peaks(dtype, device, side=8192, copied=2**30)
    threads = torch.get_num_threads()
    together = _peaks(dtype, device, side=1024, copied=2**27)
    torch.set_num_threads(1)
    alone = _peaks(dtype, device, side=512, copied=2**26)
    torch.set_num_threads(threads)
    return together.best(Peaks(alone.flops * cores(), alone.bytes))


def _peaks(dtype: torch.dtype, device: str, side: int, copied: int) -> Peaks:
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    source = torch.ones(copied // a.element_size(), dtype=dtype, device=device)
    target = torch.ones_like(source)
    product = _best(lambda: torch.mm(a, b, out=out), device)
    copy = _best(lambda: target.copy_(source), device)
    return Peaks(2 * side**3 / product, 2 * copied / copy)


def _best(action: Callable[[], object], device: str) -> float:
    times = []
    for _ in range(REPEATS):
        synchronise(device)
        began = time.perf_counter()
        action()
        synchronise(device)
        times.append(time.perf_counter() - began)
    return min(times)
