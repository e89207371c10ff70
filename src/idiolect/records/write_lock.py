"""A lock that lets only one process at a time write a run.

The operating system locks the folder and releases the lock when the process ends, however it ends.  A process that is
forked meanwhile lets go of the lock at once, so that it does not hold it when its parent is killed.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from idiolect.errors import UserError

__all__ = ["WriteLock"]

_HELD: weakref.WeakSet[WriteLock] = weakref.WeakSet()


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
        _HELD.add(self)


def _let_go() -> None:
    """Closes the locks that this process has inherited; its parent still holds them."""
    for lock in list(_HELD):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _lock(handle: int) -> bool:
    import fcntl  # noqa: PLC0415 - missing on some systems

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no such locks
        pass
    return True
