"""The worker process of ``pool``: it is started by the fork server and answers calls until its pipe closes.

A worker is a fresh process.  It receives the method and the data once, the data in memory that it shares with all
other workers.  For every call it finds the server's state and its clients' private state in shared memory, and puts
its answers there.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from idiolect.core import Clock, Program
from idiolect.engines.cohort.engine import CohortEngine
from idiolect.engines.contract import nobody
from idiolect.engines.cpu_tuning import tune_for_one_core, yield_to_waker
from idiolect.engines.device_data import Workload
from idiolect.engines.loop import LoopEngine
from idiolect.engines.pool.fork_server import ForkServer, fork_server
from idiolect.engines.pool.shared_memory import Mailbox, Parcel, file_behind, mapped, shared_copy
from idiolect.engines.process_pickling import UNSENDABLE, cannot_be_sent
from idiolect.engines.worker_calls import EngineCall, answer, answer_or_error, worker_engine
from idiolect.federation import ByClient

__all__ = [
    "ComingRound",
    "PoolWorker",
    "StagesOfTask",
    "WorkerData",
    "WorkerTask",
    "run_worker",
    "start_worker",
]


class WorkerTask(NamedTuple):
    """A call for some clients, with the server's state and the clients' private state in mailboxes."""

    call: EngineCall
    server: Parcel
    clients: list[int]
    privates: Parcel


class StagesOfTask(NamedTuple):
    """Tells the parent how many stages of clients are done since it was told last; the answer follows."""

    done: int


class ComingRound(NamedTuple):
    """Tells a worker which clients it will get in a coming round; the worker does not answer."""

    clock: Clock
    clients: list[int]


class WorkerSetup(NamedTuple):
    """Tells a worker how to read the data that it starts with.

    Args:
        path: where the parent finds modules.
        parcel: of the workload and the program.
        shape, dtype: of the inputs.
    """

    path: list[str]
    parcel: Parcel
    shape: tuple[int, ...]
    dtype: str


class WorkerData:
    """What all workers of a pool need from the start, in shared memory.

    Inputs that lie in shared memory already are not copied.

    Attributes:
        server: the mailbox of the server's state, for all workers.
    """

    def __init__(self, work: Workload, program: Program) -> None:
        given = work.federation.x
        same = given.ctypes.data == work.x.data_ptr() and given.nbytes == work.x.nbytes
        self._inputs = shared_copy(given if same else work.x.numpy())
        parts = (replace(work.for_workers(), x=work.x[:0].clone()), program)
        self.server, self._rest = Mailbox(), Mailbox()
        try:
            self._parcel = self._rest.put_anything(parts)
        except BaseException as error:
            self.close()
            if not isinstance(error, UNSENDABLE):
                raise
            raise cannot_be_sent(program, error) from error

    @property
    def files(self) -> list[int]:
        inputs = file_behind(self._inputs)
        assert inputs is not None
        return [inputs, self._rest.file]

    @property
    def setup(self) -> WorkerSetup:
        return WorkerSetup(sys.path, self._parcel, self._inputs.shape, self._inputs.dtype.str)

    def close(self) -> None:
        self.server.close()
        self._rest.close()


@dataclass(eq=False)
class PoolWorker:
    """A worker as the parent sees it.

    Args:
        process: its process number.
        home: the fork server that started it.
    """

    process: int
    home: ForkServer
    pipe: Connection
    inbox: Mailbox
    outbox: Mailbox

    def send(self, message: WorkerSetup | WorkerTask | ComingRound) -> None:
        with suppress(OSError):  # a dead worker is found when its answer is missing
            self.pipe.send(message)

    def answer(self) -> Parcel | StagesOfTask | None:
        """Returns the worker's answer, or None if the worker died.

        Raises:
            UserError, RuntimeError: as the worker did.
        """
        try:
            answer: Parcel | StagesOfTask | Exception = self.pipe.recv()
        except (EOFError, OSError):
            return None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def read(self, answer: Parcel) -> Sequence[Any]:
        """Returns the trees of an answer, copied; stacked trees lie in the outbox until the worker's next task."""
        if answer.n_stacked is None:
            copied: Sequence[Any] = self.outbox.take(answer)
            return copied
        return self.outbox.view_all(answer)

    def exit_code(self) -> int | None:
        """Returns the exit code of a worker that died, or None if it is unknown."""
        return self.home.wait(self.process)

    def close(self) -> None:
        """Ends the worker; ``exit_code`` has waited for one that died."""
        self.pipe.close()
        self.home.end(self.process)
        self.inbox.close()
        self.outbox.close()


def start_worker(data: WorkerData) -> PoolWorker:
    """Has the fork server start a worker, and sends it the data."""
    home = fork_server()
    ours, theirs = Pipe()
    inbox, outbox = Mailbox(), Mailbox()
    try:
        with theirs:
            files = [theirs.fileno(), data.server.file, inbox.file, outbox.file, *data.files]
            worker = PoolWorker(home.start(files), home, ours, inbox, outbox)
    except BaseException:
        for opened in (ours, inbox, outbox):
            opened.close()
        raise
    worker.send(data.setup)
    return worker


def run_worker(line: int, server: int, inbox: int, outbox: int, inputs: int, rest: int) -> None:
    """Runs a worker from its start to the end of its pipe.

    Args:
        line: the open file of the worker's end of the pipe; the others are those of mailboxes and of its data.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    tune_for_one_core()
    yield_to_waker()
    with suppress(EOFError, OSError), Connection(line) as pipe:  # the parent has gone
        loaded = answer_or_error(_load, pipe.recv(), inputs, Mailbox(rest))
        mailboxes = _WorkerMailboxes(Mailbox(server), Mailbox(inbox), Mailbox(outbox))
        gc.freeze()  # these objects stay, and a search of them for garbage takes milliseconds
        while True:
            message = pipe.recv()
            if isinstance(message, ComingRound):
                if not isinstance(loaded, Exception):
                    answer_or_error(_prepare, message, loaded)  # an error comes up again in the round itself
            elif isinstance(loaded, Exception):
                pipe.send(loaded)
            else:
                pipe.send(answer_or_error(_answer, message, loaded, mailboxes, pipe))


class _LoadedEngine(NamedTuple):
    engine: LoopEngine | CohortEngine
    program: Program


class _WorkerMailboxes(NamedTuple):
    """Mailboxes of the server's state, and of what comes in and goes out."""

    server: Mailbox
    inbox: Mailbox
    outbox: Mailbox


def _load(setup: WorkerSetup, inputs: int, rest: Mailbox) -> _LoadedEngine:
    sys.path[:] = setup.path
    work, program = rest.view_anything(setup.parcel)
    x = torch.from_numpy(mapped(inputs, setup.shape, setup.dtype))
    return _LoadedEngine(worker_engine(replace(work, x=x), program), program)


def _answer(task: WorkerTask, loaded: _LoadedEngine, mailboxes: _WorkerMailboxes, pipe: Connection) -> Parcel:
    privates = ByClient(task.clients, mailboxes.inbox.view_all(task.privates))
    server = mailboxes.server.view(task.server)

    def progress(done: int) -> None:
        pipe.send(StagesOfTask(done))

    listens = progress if task.call.option == "end" else nobody
    found = answer(loaded.engine, loaded.program, task.call, server, privates, listens)
    return mailboxes.outbox.put_all(found)


def _prepare(coming: ComingRound, loaded: _LoadedEngine) -> None:
    if isinstance(loaded.engine, CohortEngine):
        loaded.engine.look_ahead(replace(loaded.program, clock=coming.clock), coming.clients)
