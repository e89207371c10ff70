"""A lock that lets only one process at a time write a run.

The operating system locks the folder and releases the lock when the process ends, however it ends.
"""

from __future__ import annotations

import os
import weakref
from importlib.util import find_spec
from pathlib import Path

from idiolect.errors import UserError

__all__ = ["WriteLock"]


class WriteLock:
    """Keeps a folder from other processes until it is let go; where a system has no such locks, nobody is kept out.

    Raises:
        UserError: another holds it.
    """

    def __init__(self, folder: Path) -> None:
        if find_spec("fcntl") is None:
            self.release = lambda: None
            return
        handle = os.open(folder, os.O_RDONLY)
        self.release = weakref.finalize(self, os.close, handle)
        if not _lock(handle):
            self.release()
            raise UserError(f"{folder} is being written by another process; let it end, or stop it first")


def _lock(handle: int) -> bool:
    import fcntl  # noqa: PLC0415 - not on every system

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system that has no such locks
        pass
    return True
