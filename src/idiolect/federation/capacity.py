"""How much memory and disk there is, and sizes as people read them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["free_disk", "free_memory", "readable"]

CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Bytes that this process may still take: what the system has available, or less in a container."""
    free = _available()
    try:
        limit, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
    except (OSError, ValueError):  # no such limit
        return free
    return max(0, min(free, limit - used))


def _available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def free_disk(folder: Path) -> int:
    """Bytes that can be written under a folder, which need not be there yet."""
    folder = Path(folder).absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def readable(n_bytes: float) -> str:
    """Two digits or more, in powers of 1000.

    >>> readable(12), readable(1234), readable(93_720_000_000)
    ('12 B', '1.2 kB', '94 GB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if n_bytes < 999.5 or unit == "TB":
            break
        n_bytes /= 1000
    return f"{n_bytes:.1f} {unit}" if n_bytes < 9.95 and unit != "B" else f"{n_bytes:.0f} {unit}"
