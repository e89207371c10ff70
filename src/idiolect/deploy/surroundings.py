"""The environment of every process of a deployment, and a mark by which all of them are found again."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["end", "environment", "free_port", "marked", "program"]

MARK = "IDIOLECT_DEPLOYMENT"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


def environment(folder: Path, home: Path) -> dict[str, str]:
    """Telemetry, checks for updates and run-time installs of Flower off; its files below ``home``.

    Args:
        folder: what the processes are marked with, unless this one is marked already and hands its mark on.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    mark = os.environ.get(MARK, str(Path(folder).resolve()))
    return {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(home), MARK: mark}


def program(name: str) -> str:
    """A program of Flower's, from the environment that this one runs in."""
    return str(Path(sys.executable).parent / name)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def marked(folder: Path) -> dict[int, str]:
    """Processes of this deployment that run now, by id: what they were started as."""
    sign = f"{MARK}={Path(folder).resolve()}".encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if sign not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if state != "Z" and int(entry.name) != os.getpid():
            found[int(entry.name)] = command
    return found


def end(folder: Path, patience: float = 5.0) -> list[int]:
    """Ends every process of this deployment: asked first, then killed; gives their ids."""
    ended = list(marked(folder))
    _signal(ended, signal.SIGTERM)
    until = time.monotonic() + patience
    while (left := marked(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    while left:
        _signal(left, signal.SIGKILL)
        time.sleep(0.05)
        left = marked(folder)
    return ended


def _signal(processes: Iterable[int], number: int) -> None:
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue
