"""Nodes of a Ray cluster that tests start, and all processes that came of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .child_process import child_process, is_running

__all__ = ["family", "head_node", "node", "wait_until_gone"]


@contextmanager
def node(*options: str) -> Iterator[None]:
    """One node of a cluster, on this machine; it is ready in the block, and ends with it.

    Args:
        options: of ``ray start``.
    """
    words = [str(Path(sys.executable).with_name("ray")), "start", "--block", *options]
    words += ["--object-store-memory=100000000", "--disable-usage-stats"]
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "PYTHONUNBUFFERED": "1"}
    log = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with child_process(words, env={**os.environ, **settings}, **log) as process:
        try:
            said = []
            for line in process.stdout:
                said.append(line)
                if "Ray runtime started" in line:
                    break
            else:
                raise AssertionError("".join(said))
            yield
        finally:
            seen = family(process.pid)
            process.terminate()
            process.wait(60)
            wait_until_gone(seen)


@contextmanager
def head_node(port: int, *options: str) -> Iterator[str]:
    """The first node of a cluster, whose files go with it; gives the cluster's address."""
    # Ray's sockets lie there, whose paths may not be long.
    folder = tempfile.TemporaryDirectory(dir="/tmp", prefix="idiolect-", ignore_cleanup_errors=True)
    ours = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder.name}"]
    with folder, node(*ours, *options):
        yield f"127.0.0.1:{port}"


def family(parent: int) -> set[int]:
    """A process and all that came of it."""
    found, children = {parent}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                state = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(state[1]), []).append(int(folder.name))
    waiting = [parent]
    while waiting:
        new = children.get(waiting.pop(), [])
        found.update(new)
        waiting += new
    return found


def wait_until_gone(processes: set[int]) -> None:
    """Ray's own helpers of a driver that was killed take up to a minute to notice."""
    deadline = time.monotonic() + 90
    while alive := [process for process in processes if is_running(process)]:
        assert time.monotonic() < deadline, f"still there: {alive}"
        time.sleep(0.1)
