"""The life of a pool's worker: it serves one call after the other until its pipe closes.

A worker is a fresh process.  It receives the method and the data once, the data in memory that it shares with all
others, and for every call the server's state and its clients' private rows through shared memory.
"""

from __future__ import annotations

import gc
import pickle
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
from idiolect.engines.cpu_tuning import give_way, settle_on_one_core
from idiolect.engines.loop import LoopEngine
from idiolect.engines.pool.fork_server import ForkServer, fork_server
from idiolect.engines.pool.shared_memory import Letter, Mailbox, file_behind, mapped, shared_copy
from idiolect.engines.worker_calls import Call, answer, answer_or_error, worker_engine
from idiolect.engines.workload import Workload
from idiolect.errors import UserError
from idiolect.federation import ByClient

__all__ = ["Ahead", "Luggage", "Task", "Worker", "start_worker"]

UNSENDABLE = (pickle.PicklingError, TypeError, AttributeError, ValueError, RuntimeError)  # what pickle raises


class Task(NamedTuple):
    """A call for some clients."""

    call: Call
    server: Letter
    clients: list[int]
    privates: Letter


class Ahead(NamedTuple):
    """The clients of a round that is to come, and its moment; it is not answered."""

    clock: Clock
    clients: list[int]


class Luggage:
    """What every worker of a pool needs from the start, in shared memory.

    Inputs that lie in shared memory already are not copied.  ``server`` is where the server's state is put for all
    workers.
    """

    def __init__(self, work: Workload, program: Program) -> None:
        given = work.federation.x
        same = given.ctypes.data == work.x.data_ptr() and given.nbytes == work.x.nbytes
        self._inputs = shared_copy(given if same else work.x.numpy())
        parts = (replace(work.for_workers(), x=work.x[:0].clone()), program)
        self.server, self._rest = Mailbox(), Mailbox()
        try:
            self.letter = self._rest.put_anything(parts)
        except BaseException as error:
            self.close()
            if not isinstance(error, UNSENDABLE):
                raise
            raise UserError(
                f"a part, the model or the loss of method {program.method.name} holds something that cannot be sent to "
                f"another process ({error}); use --engine loop"
            ) from error

    @property
    def files(self) -> list[int]:
        inputs = file_behind(self._inputs)
        assert inputs is not None
        return [inputs, self._rest.file]

    @property
    def label(self) -> Label:
        return Label(sys.path, self.letter, self._inputs.shape, self._inputs.dtype.str)

    def close(self) -> None:
        self.server.close()
        self._rest.close()


class Label(NamedTuple):
    """How a worker unpacks the luggage.

    Args:
        path: where the parent finds modules.
        shape, dtype: of the inputs.
    """

    path: list[str]
    letter: Letter
    shape: tuple[int, ...]
    dtype: str


@dataclass(eq=False)
class Worker:
    process: int
    home: ForkServer
    pipe: Connection
    inbox: Mailbox
    outbox: Mailbox

    def send(self, message: Label | Task | Ahead) -> None:
        with suppress(OSError):  # a dead worker is found when its answer is missing
            self.pipe.send(message)

    def answer(self) -> Letter | None:
        """What it sent back; None when it died."""
        try:
            answer: Letter | Exception = self.pipe.recv()
        except (EOFError, OSError):
            return None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def read(self, answer: Letter) -> Sequence[Any]:
        """Trees with memory of their own; stacked, they lie in the outbox until the worker has another task."""
        if answer.n_stacked is None:
            return self.outbox.take(answer)  # type: ignore[no-any-return]
        return self.outbox.look_at_all(answer)

    def exit_code(self) -> int | None:
        """Of a worker that died; None where nobody knows."""
        return self.home.wait(self.process)

    def close(self) -> None:
        """Ends the worker; one that died has been waited for by ``exit_code``."""
        self.pipe.close()
        self.home.end(self.process)
        self.inbox.close()
        self.outbox.close()


def start_worker(luggage: Luggage) -> Worker:
    """Forks a worker and sends it the luggage."""
    home = fork_server()
    ours, theirs = Pipe()
    inbox, outbox = Mailbox(), Mailbox()
    try:
        with theirs:
            files = [theirs.fileno(), luggage.server.file, inbox.file, outbox.file, *luggage.files]
            worker = Worker(home.start(files), home, ours, inbox, outbox)
    except BaseException:
        for opened in (ours, inbox, outbox):
            opened.close()
        raise
    worker.send(luggage.label)
    return worker


def serve(line: int, server: int, inbox: int, outbox: int, inputs: int, rest: int) -> None:
    """A worker from its start to the end of its pipe.

    Args:
        line: the open file of its end of the pipe; the others are those of mailboxes and of the luggage.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    settle_on_one_core()
    give_way()
    with suppress(EOFError, OSError), Connection(line) as pipe:  # the parent has gone
        unpacked = answer_or_error(_unpack, pipe.recv(), inputs, Mailbox(rest))
        desk = _Desk(Mailbox(server), Mailbox(inbox), Mailbox(outbox))
        gc.freeze()  # what is here now stays: to look through it for garbage takes milliseconds
        while True:
            message = pipe.recv()
            if isinstance(message, Ahead):
                answer_or_error(
                    _prepare, message, unpacked
                )  # what is wrong comes up again in the round itself
            elif isinstance(unpacked, Exception):
                pipe.send(unpacked)
            else:
                pipe.send(answer_or_error(_answer, message, unpacked, desk))


class _Unpacked(NamedTuple):
    engine: LoopEngine | CohortEngine
    program: Program


class _Desk(NamedTuple):
    """Mailboxes: of the server's state, and of what comes in and goes out."""

    server: Mailbox
    inbox: Mailbox
    outbox: Mailbox


def _unpack(label: Label, inputs: int, rest: Mailbox) -> _Unpacked:
    sys.path[:] = label.path
    work, program = rest.look_at_anything(label.letter)
    x = torch.from_numpy(mapped(inputs, label.shape, label.dtype))
    return _Unpacked(worker_engine(replace(work, x=x), program), program)


def _answer(task: Task, unpacked: _Unpacked, desk: _Desk) -> Letter:
    privates = ByClient(task.clients, desk.inbox.look_at_all(task.privates))
    server = desk.server.look(task.server)
    return desk.outbox.put_all(answer(unpacked.engine, unpacked.program, task.call, server, privates))


def _prepare(ahead: Ahead, unpacked: _Unpacked) -> None:
    if isinstance(unpacked.engine, CohortEngine):
        unpacked.engine.look_ahead(replace(unpacked.program, clock=ahead.clock), ahead.clients)
