"""The life of a pool's worker: a fork that serves one call after the other until its pipe closes.

A worker inherits the data and the method, whose pages it shares with its parent, and receives the server's state
and its clients' private rows through shared memory.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from idiolect.core import Clock, Program
from idiolect.engines.call import Call, answer, answer_or_error
from idiolect.engines.cohort import Cohort
from idiolect.engines.loop import Loop
from idiolect.engines.mailbox import Letter, Mailbox
from idiolect.engines.one_core import give_way, keep_freed_memory
from idiolect.federation import ByClient

__all__ = ["Ahead", "Task", "Worker", "start_worker"]


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


@dataclass(eq=False)
class Worker:
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    inbox: Mailbox
    outbox: Mailbox

    def send(self, message: Task | Ahead) -> None:
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

    def close(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()
        self.inbox.close()
        self.outbox.close()


def start_worker(
    engine: Loop | Cohort, program: Program, server: Mailbox, others: list[Connection]
) -> Worker:
    """Args:
    server: where the server's state lies for all workers.
    others: the parent's ends of other workers' pipes, which a fork must not keep open.
    """
    keep_freed_memory()
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    inbox, outbox = Mailbox(), Mailbox()
    arguments = (engine, program, theirs, [*others, ours], server, inbox, outbox)
    process = fork.Process(target=_serve, args=arguments, daemon=True)
    process.start()
    theirs.close()
    return Worker(process, ours, inbox, outbox)


def _serve(
    engine: Loop | Cohort,
    program: Program,
    pipe: Connection,
    others: list[Connection],
    server: Mailbox,
    inbox: Mailbox,
    outbox: Mailbox,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and ends its workers
    for other in others:
        other.close()
    torch.set_num_threads(1)
    give_way()
    gc.freeze()  # what the fork inherits stays: to look through it for garbage takes milliseconds

    def serve(task: Task) -> Letter:
        privates = ByClient(task.clients, inbox.look_at_all(task.privates))
        return outbox.put_all(answer(engine, program, task.call, server.look(task.server), privates))

    def prepare(ahead: Ahead) -> None:
        if isinstance(engine, Cohort):
            engine.look_ahead(replace(program, clock=ahead.clock), ahead.clients)

    with suppress(EOFError, OSError):  # the parent has gone
        while True:
            message = pipe.recv()
            if isinstance(message, Ahead):
                answer_or_error(prepare, message)  # what is wrong comes up again in the round itself
            else:
                pipe.send(answer_or_error(serve, message))
