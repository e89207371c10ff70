"""A job: a process that makes whole runs, one after the other, and tells its parent of their progress.

A job is a fresh process, as the workers of the engine ``pool`` are: what the user's code has registered reaches it by
value.  It ends when its parent closes the pipe or ends in any way, and a run that it leaves can be resumed.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

__all__ = ["Done", "Failed", "JobSetup", "Judged", "Refused", "Shown", "StartRun", "Stopped", "main"]

START = (
    "import sys; sys.path[:] = {path!r}; "
    "from idiolect.experiments.jobs.job_process import main; main({pipe}, {box})"
)
OFTEN = 0.1  # seconds between two reports of progress
STOP = "stop"


class JobSetup(NamedTuple):
    """What a job needs before its first run.

    Args:
        parcel: of the names that were registered in the parent.
        threads: intra-op threads of PyTorch, as many as the parent has.
    """

    parcel: Any
    threads: int


class StartRun(NamedTuple):
    """Asks for a run.

    Args:
        execution: the fields of the execution, without its watcher.
        name: what the parent calls the run.
        judged: the parent is asked after every evaluated round whether to stop.
        memory: bytes of a GPU that must be free; 0 starts the run in any case.
    """

    experiment: Any
    execution: dict[str, Any]
    name: str
    judged: bool
    memory: int


class Shown(NamedTuple):
    """Something that the watcher is told: the name of its method, and the arguments."""

    what: str
    facts: tuple[Any, ...]


class Judged(NamedTuple):
    """Asks whether to stop the run after so many rounds, with this value on validation data."""

    round: int
    value: float


class Done(NamedTuple):
    """The run is finished, in this folder."""

    folder: str


class Stopped(NamedTuple):
    """The run was stopped early after so many rounds."""

    round: int


class Refused(NamedTuple):
    """The run was refused: a user's mistake, or a divergence; or waits, because the GPU has too little memory."""

    sentence: str
    waits: bool = False
    divergence: Any = None


class Failed(NamedTuple):
    """The run failed by an error of the program or of its machine.

    Args:
        error: that of the machine, which says what to do; None for any other.
    """

    text: str
    error: OSError | MemoryError | None = None


class _Inbox:
    """Receives the parent's messages in a thread, so that a job learns at once that it is to stop."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock, self._running, self._stopping = threading.Lock(), False, False
        threading.Thread(target=self._receive, daemon=True).start()

    def get(self) -> Any:
        return self._messages.get()

    def run(self, function: Callable[[], Any]) -> Any:
        """Calls a function which a message to stop interrupts as Ctrl-C does."""
        with self._lock:
            if self._stopping:
                raise KeyboardInterrupt
            self._running = True
        try:
            return function()
        finally:
            with self._lock:
                self._running = False

    def _receive(self) -> None:
        try:
            while True:
                message = self._pipe.recv()
                if message == STOP:
                    with self._lock:
                        self._stopping = True
                        if self._running:
                            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                else:
                    self._messages.put(message)
        except (EOFError, OSError):  # the parent has gone, or needs this job no more
            _leave()


class _PipeWatcher:
    """A watcher that tells the parent, rounds at most ten times a second."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._told = pipe, 0.0

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *facts: self._pipe.send(Shown(name, facts))

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        if time.monotonic() - self._told >= OFTEN:
            self._told = time.monotonic()
            self._pipe.send(Shown("advance", (rounds_done, numbers)))


def main(pipe: int, box: int) -> None:
    """Runs a job from its start to the end of its pipe.

    Args:
        pipe: the open file of the job's end of the pipe.
        box: that of the mailbox with the names that the parent has registered.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # while modules are imported
    import torch  # noqa: PLC0415 - takes seconds

    from idiolect.engines.pool.shared_memory import Mailbox  # noqa: PLC0415
    from idiolect.experiments.jobs.registered_names import take_over  # noqa: PLC0415

    connection = Connection(pipe)
    setup: JobSetup = connection.recv()
    torch.set_num_threads(setup.threads)
    mailbox = Mailbox(box)
    take_over(mailbox.view_anything(setup.parcel))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    inbox = _Inbox(connection)
    try:
        while True:
            asked: StartRun = inbox.get()
            connection.send(_answer(asked, connection, inbox))
    except (KeyboardInterrupt, OSError):  # asked to stop, or the parent has gone
        pass
    sys.stdout.flush()
    sys.stderr.flush()
    _leave()


def _leave() -> None:
    """Ends the process without the exit handlers, and pool's fork server with it."""
    from idiolect.engines.pool.fork_server import end_fork_server  # noqa: PLC0415

    try:
        end_fork_server()
    finally:
        os._exit(0)


def _answer(asked: StartRun, pipe: Connection, inbox: _Inbox) -> Any:
    """Makes a run and returns what the parent is told at its end."""
    from idiolect.errors import UserError  # noqa: PLC0415
    from idiolect.experiments.execution import Execution  # noqa: PLC0415
    from idiolect.experiments.identity import name_of  # noqa: PLC0415
    from idiolect.experiments.rounds.early_stopping import StoppedEarly  # noqa: PLC0415
    from idiolect.experiments.run import make_run  # noqa: PLC0415

    def judge(round: int, value: float) -> bool:
        pipe.send(Judged(round, value))
        return bool(inbox.get())

    def run() -> Any:
        if (free := _free_memory(asked.execution["device"])) < asked.memory:
            return Refused(f"{free / 2**30:.1f} GiB of the GPU's memory are free", waits=True)
        if name_of(asked.experiment) != asked.name:
            return Refused(
                "own code that takes part in the run reads differently in another process; put it into a file, or "
                "leave --jobs out"
            )
        execution = Execution(**asked.execution, watcher=_PipeWatcher(pipe))
        return Done(str(make_run(asked.experiment, execution, judge if asked.judged else None).folder))

    try:
        return inbox.run(run)
    except StoppedEarly as stopped:
        return Stopped(stopped.round)
    except UserError as error:
        return Refused(str(error), divergence=getattr(error, "divergence", None))
    except Exception as error:
        text = f"{error}\n{traceback.format_exc()}"
        if isinstance(error, OSError | MemoryError) and type(error).__module__ == "builtins":
            return Failed(text, error)
        return Failed(text)


def _free_memory(device: str) -> float:
    """Returns the free bytes of the GPU; infinitely many where none is used."""
    import torch  # noqa: PLC0415

    return float(torch.cuda.mem_get_info()[0]) if device == "cuda" else float("inf")
