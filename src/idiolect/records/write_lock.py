"""A lock that lets only one process at a time write a run.

The operating system locks the folder and releases the lock when the process ends, however it ends.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from idiolect.errors import UserError

__all__ = ["WriteLock"]


class WriteLock:
    """Locks a folder against other processes until it is released; does nothing on systems without such locks.

    Raises:
        UserError: another process holds the lock.
    """

    def __init__(self, folder: Path) -> None:
        self.release: Callable[[], object] = lambda: None
        if find_spec("fcntl") is None:
            return
        handle = os.open(folder, os.O_RDONLY)
        self.release = weakref.finalize(self, os.close, handle)
        if not _lock(handle):
            self.release()
            raise UserError(f"{folder} is being written by another process; let it end, or stop it first")


def _lock(handle: int) -> bool:
    import fcntl  # noqa: PLC0415 - missing on some systems

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no such locks
        pass
    return True
