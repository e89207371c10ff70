"""The process from which a pool's workers are forked: a fresh interpreter with torch imported, and nothing else.

A fork of the user's own process would inherit its threads and locks and, beside a GPU, CUDA's state, which PyTorch does
not allow.  The fork server sees no GPU.  It is started once, early, and serves all pools of the process; its workers
start in milliseconds and share the memory of what it has imported.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from idiolect.errors import UserError

__all__ = ["ForkServer", "fork_server", "main"]

MESSAGE, FILES = 256, 16  # bytes and files of a request at most
START = "import sys; sys.path[:] = {path!r}; from idiolect.engines.pool.fork_server import main; main({line})"
ALONE = {
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class ForkServer:
    """The parent's side.  When the line is closed, by whatever end of the parent, server and workers end."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._has_started_workers = False
        self.owner = os.getpid()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START.format(path=sys.path, line=theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **ALONE},
                process_group=0,  # Ctrl-C is the parent's, which then ends the workers
            )

    @property
    def is_alive(self) -> bool:
        return self._line.fileno() >= 0 and self._process.poll() is None

    def start(self, files: Sequence[int]) -> int:
        """Forks a worker that serves with these open files; gives its process number."""
        worker = self._ask({"do": "start"}, files)
        if worker is None:
            raise UserError(
                f"the process that starts pool's workers ended with exit code {self._process.wait()}; the machine may "
                "be out of memory: try --engine loop"
            )
        self._has_started_workers = True
        return worker

    def wait(self, worker: int) -> int | None:
        """The exit code of a worker once it has ended, below 0 the signal that ended it; None if nobody knows."""
        return self._ask({"do": "wait", "worker": worker})

    def end(self, worker: int) -> None:
        """Ends a worker, if it has not ended."""
        self._ask({"do": "end", "worker": worker})

    def close(self) -> None:
        """Ends the server and its workers, and at once a server that has none and may still be importing torch."""
        self._line.close()
        if not self._has_started_workers:
            self._process.kill()
        self._process.wait()

    def _ask(self, request: dict[str, Any], files: Sequence[int] = ()) -> int | None:
        """The answer, a number; None when the server has gone.

        An interrupt ends the server, because the answer that is still to come would be read as that to a later
        request.
        """
        with self._lock:
            try:
                socket.send_fds(self._line, [json.dumps(request).encode()], files)
                answer = self._line.recv(MESSAGE)
                return int(answer) if answer else None
            except OSError:
                return None
            except BaseException:
                self.close()
                raise


_running: ForkServer | None = None


def fork_server() -> ForkServer:
    """The fork server of this process, started if need be; a first worker waits until it has imported torch."""
    global _running
    if _running is None or _running.owner != os.getpid() or not _running.is_alive:
        _running = ForkServer()
        atexit.register(_running.close)
    return _running


def main(number: int) -> None:
    """The server's side: answers one request after the other until the line is closed.

    Args:
        number: of the open file that is its end of the line.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from idiolect.engines.pool.worker import serve  # noqa: PLC0415 - takes a second, after signals are out of the way

    import_module("torch._dynamo")  # which torch would import at a worker's first gradient, in two seconds
    gc.collect()
    gc.freeze()  # what workers inherit stays: to look through it for garbage would copy its pages
    workers: set[int] = set()
    line = socket.socket(fileno=number)
    while True:
        try:
            content, files, _, _ = socket.recv_fds(line, MESSAGE, FILES)
        except ConnectionResetError:  # the parent has closed the line with an answer unread
            break
        if not content:
            break
        request = json.loads(content)
        worker = request.get("worker")
        if request["do"] == "start":
            worker = os.fork()
            if worker == 0:
                line.close()
                _live(serve, files)
            for file in files:
                os.close(file)
            workers.add(worker)
            answer = worker
        else:
            answer = _last_word(request["worker"], request["do"] == "end") if worker in workers else 0
            workers.discard(worker)
        with suppress(OSError):  # the parent has gone, which the next request tells
            line.send(str(answer).encode())
    for worker in workers:
        os.kill(worker, signal.SIGKILL)


def _last_word(worker: int, end: bool) -> int:
    """The exit code of a worker, which is ended before if asked."""
    if end:
        os.kill(worker, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


def _live(serve: Callable[..., None], files: Sequence[int]) -> None:
    """Runs a worker and ends its process, without what the server would do at its own end."""
    code = 1
    try:
        serve(*files)
        code = 0
    except Exception:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
