"""Peak resident memory of a process and its children, sampled from outside while they work.

A page that several processes share is divided among them (the kernel's Pss), so that shared data count once.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

__all__ = ["PeakMemory", "resident"]

PERIOD = 0.01  # seconds between samples


def resident(pid: int) -> int | None:
    """Returns the bytes of the process and all its descendants, or None if the kernel does not say."""
    family, total = [pid], 0
    for member in family:
        try:
            total += _proportional(member)
            family += _children(member)
        except OSError:
            if member == pid:
                return None
    return total


def _proportional(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for tasks in lists for child in tasks.read_text().split()]


class PeakMemory:
    """Samples memory while its block runs; ``peak`` is the largest sum seen, or None."""

    def __init__(self, pid: int) -> None:
        self.peak: int | None = None
        self._pid, self._over = pid, threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._sampler.join()

    def _sample(self) -> None:
        while True:
            seen = resident(self._pid)
            if seen is not None:
                self.peak = max(seen, self.peak or 0)
            if self._over.wait(PERIOD):
                return
