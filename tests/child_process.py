"""The processes that tests start."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["child_process", "children_of", "is_running"]


@contextmanager
def child_process(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Starts a command in a session of its own; whatever happens in the block, its process group is killed after it.

    The child hears SIGINT and SIGTERM, which it would ignore where the tests do: under nohup, or in the background of
    a shell.

    Args:
        options: those of ``subprocess.Popen``.
    """
    child = subprocess.Popen(command, start_new_session=True, preexec_fn=_hear_signals, **options)
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):  # they have all ended
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


def _hear_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def children_of(process: int) -> list[int]:
    """The processes that the main thread of a process has started."""
    try:
        return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def is_running(process: int) -> bool:
    """Whether a process is there and has not ended; one that nobody has waited for yet has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
