"""The fork server of ``pool``: a fresh interpreter that has imported torch, from which all workers are forked.

A fork of the user's own process would inherit its threads and locks and, beside a GPU, CUDA's state, which PyTorch does
not allow.  The fork server sees no GPU.  It is started once, early, and serves all pools of the process.  Its workers
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

__all__ = ["ForkServer", "end_fork_server", "fork_server", "main"]

MESSAGE, FILES = 256, 16  # the most bytes and files of a request
START = "import sys; sys.path[:] = {path!r}; from idiolect.engines.pool.fork_server import main; main({line})"
ALONE = {
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class ForkServer:
    """The fork server as its parent sees it.

    Server and workers end when the parent closes the line, or ends in any way.
    """

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
                process_group=0,  # Ctrl-C goes to the parent alone, which then ends the workers
            )

    @property
    def is_alive(self) -> bool:
        return self._line.fileno() >= 0 and self._process.poll() is None

    def start(self, files: Sequence[int]) -> int:
        """Forks a worker that serves with these open files; returns its process number."""
        worker = self._ask({"do": "start"}, files)
        if worker is None:
            raise UserError(
                f"the process that starts pool's workers ended with exit code {self._process.wait()}; the machine may "
                "be out of memory: try --engine loop"
            )
        self._has_started_workers = True
        return worker

    def wait(self, worker: int) -> int | None:
        """Waits for a worker to end and returns its exit code; None if it is unknown.

        An exit code below 0 is the signal that ended the worker.
        """
        return self._ask({"do": "wait", "worker": worker})

    def end(self, worker: int) -> None:
        """Ends a worker, if it has not ended yet."""
        self._ask({"do": "end", "worker": worker})

    def close(self) -> None:
        """Ends the server and its workers; a server without workers, which may still be importing torch, is killed."""
        self._line.close()
        if not self._has_started_workers:
            self._process.kill()
        self._process.wait()

    def _ask(self, request: dict[str, Any], files: Sequence[int] = ()) -> int | None:
        """Sends a request and returns the answer, a number; None if the server has gone.

        An interrupt ends the server, because the pending answer would be read as the answer to a later request.
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
    """Returns the fork server of this process, which is started if need be.

    The first worker starts when the server has imported torch.
    """
    global _running
    if _running is None or _running.owner != os.getpid() or not _running.is_alive:
        _running = ForkServer()
        atexit.register(_running.close)
    return _running


def end_fork_server() -> None:
    """Ends the fork server of this process, for one that leaves without its exit handlers."""
    if _running is not None and _running.owner == os.getpid():
        _running.close()


def main(number: int) -> None:
    """Runs the fork server: answers one request after the other until the line is closed.

    Args:
        number: the open file that is the server's end of the line.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from idiolect.engines.pool.worker import run_worker  # noqa: PLC0415 - takes a second; signals must be ignored before

    import_module("torch._dynamo")  # torch imports it at the first gradient, which takes two seconds
    gc.collect()
    gc.freeze()  # a search for garbage would copy the pages that workers share
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
                _run_and_exit(run_worker, files)
            for file in files:
                os.close(file)
            workers.add(worker)
            answer = worker
        else:
            answer = _exit_code_of(request["worker"], request["do"] == "end") if worker in workers else 0
            workers.discard(worker)
        with suppress(OSError):  # the parent has gone; the next request tells
            line.send(str(answer).encode())
    for worker in workers:
        os.kill(worker, signal.SIGKILL)


def _exit_code_of(worker: int, end: bool) -> int:
    """Waits for a worker, ends it before if ``end``, and returns its exit code."""
    if end:
        os.kill(worker, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


def _run_and_exit(run_worker: Callable[..., None], files: Sequence[int]) -> None:
    """Runs a worker and ends its process, without the exit handlers of the server."""
    code = 1
    try:
        run_worker(*files)
        code = 0
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
