"""What a run takes of its machine: peak memory, the GPU's peak, and energy where the machine tells.

Memory is the sum of the largest resident sizes (VmHWM) of this process, since the run began, and of the processes that
it has started, since they began: workers of ``pool``, and Ray's on this machine.  Pages that several processes share
count in each.  The GPU's peak is what PyTorch of this process had allocated; that of Ray's workers is not known.

Energy is that of the processor packages (RAPL) and of the run's GPU (NVML), whoever else uses them at the time.  Where
neither can be read it is unknown, not zero.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

__all__ = ["ResourceMeter", "gpu_energy", "package_energy", "peak_memory"]

POWERCAP = Path("/sys/class/powercap")
SECONDS = 5.0  # between looks; a package's counter begins again after minutes at least
UNKNOWN = -1.0  # in a checkpoint, which holds numbers alone


class ResourceMeter:
    """Measures a run from its creation on, and over its continuations.

    Args:
        on_gpu: the run computes on this process's GPU.
    """

    def __init__(self, on_gpu: bool, powercap: Path = POWERCAP) -> None:
        self._on_gpu, self._memory = on_gpu, 0
        self._looked = float("-inf")
        self._counters: dict[str, Callable[[], dict[str, tuple[float, float]]]] = {}
        if package_energy(powercap):
            self._counters["RAPL, processor packages"] = lambda: package_energy(powercap)
        if on_gpu and gpu_energy() is not None:
            self._counters["NVML, GPU"] = lambda: {"gpu": (gpu_energy() or 0.0, 0.0)}
        self._readings = {name: read() for name, read in self._counters.items()}
        self._joules: float | None = 0.0 if self._counters else None
        self._gpu_before = 0
        _forget_peak_memory()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()

    def look(self, now: bool = False) -> None:
        """Reads memory and energy if some seconds have passed since the last time, or ``now``."""
        if not now and time.monotonic() - self._looked < SECONDS:
            return
        self._looked = time.monotonic()
        self._memory = max(self._memory, peak_memory())
        for name, read in self._counters.items():
            new, old = read(), self._readings[name]
            for counter, (joules, around) in new.items():
                spent = joules - old.get(counter, (joules, 0.0))[0]
                self._joules = (self._joules or 0.0) + (spent if spent >= 0 else spent + around)
            self._readings[name] = new

    def facts(self, seconds: float) -> dict[str, Any]:
        """Returns the entry ``resources`` of a manifest; None stands for what the machine does not tell."""
        self.look(now=True)
        unknown = self._joules is None
        return {
            "seconds": seconds,
            "peak_memory_bytes": self._memory or None,
            "peak_gpu_bytes": self._gpu_peak() if self._on_gpu else None,
            "energy_joules": self._joules,
            "energy_source": None if unknown else " + ".join(self._counters),
        }

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint must hold."""
        self.look(now=True)
        joules = UNKNOWN if self._joules is None else self._joules
        numbers = {"memory": float(self._memory), "gpu": float(self._gpu_peak()), "joules": joules}
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Adds what the run took before it was interrupted; energy is known only if it always was."""
        before = UNKNOWN
        if state is not None:
            self._memory = max(self._memory, int(state["memory"]))
            self._gpu_before = int(state["gpu"])
            before = float(state["joules"])
        if self._joules is None or before == UNKNOWN:
            self._joules, self._counters = None, {}
        else:
            self._joules += before

    def _gpu_peak(self) -> int:
        here = torch.cuda.max_memory_allocated() if self._on_gpu else 0
        return max(here, self._gpu_before)


def peak_memory() -> int:
    """Returns the summed high-water marks of this process and its descendants in bytes; 0 where nobody tells."""
    family, total = [os.getpid()], 0
    for member in family:
        with suppress(OSError, ValueError):
            status = Path(f"/proc/{member}/status").read_text()
            total += (
                sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024
            )
            for task in Path(f"/proc/{member}/task").iterdir():
                family += map(int, (task / "children").read_text().split())
    return total


def _forget_peak_memory() -> None:
    """Has the kernel begin the high-water mark of this process anew, where it can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def package_energy(powercap: Path = POWERCAP) -> dict[str, tuple[float, float]]:
    """Returns by processor package the joules of its counter, and those after which it begins again; maybe nothing."""
    found = {}
    for zone in sorted(powercap.glob("intel-rapl:*")):
        with suppress(OSError, ValueError):
            if (zone / "name").read_text().startswith("package"):
                counters = [
                    int((zone / file).read_text()) / 1e6 for file in ("energy_uj", "max_energy_range_uj")
                ]
                found[zone.name] = (counters[0], counters[1])
    return found


def gpu_energy() -> float | None:
    """Returns the joules that this process's GPU has used since its driver was loaded; None if it does not tell."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        handle, used = ctypes.c_void_p(), ctypes.c_ulonglong()
        uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}".encode()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)):
            return None
        if nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(used)):
            return None
    except (OSError, AttributeError, RuntimeError, AssertionError):
        return None
    return used.value / 1000
