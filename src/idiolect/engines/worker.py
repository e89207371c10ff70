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
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from idiolect.core import Program
from idiolect.core.trees import Rows
from idiolect.engines.call import Call, answer, answer_or_error
from idiolect.engines.cohort import Cohort
from idiolect.engines.loop import Loop
from idiolect.engines.mailbox import Letter, Mailbox
from idiolect.engines.one_core import give_way, keep_freed_memory

__all__ = ["Answer", "Task", "Worker", "start_worker"]


class Task(NamedTuple):
    """A call for some clients."""

    call: Call
    server: Letter
    privates: Letter


class Answer(NamedTuple):
    """What the engine of a worker says: a tree for each client, or all of them stacked."""

    letter: Letter
    n_stacked: int | None


@dataclass(eq=False)
class Worker:
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    inbox: Mailbox
    outbox: Mailbox

    def read(self, answer: Answer) -> Sequence[Any]:
        """Trees with memory of their own; stacked, they lie in the outbox until the worker has another task."""
        if answer.n_stacked is None:
            return self.outbox.take(answer.letter)  # type: ignore[no-any-return]
        return Rows(self.outbox.look(answer.letter), answer.n_stacked)

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

    def serve(task: Task) -> Answer:
        sent, privates = server.look(task.server), inbox.look(task.privates)
        found = answer(engine, program, task.call, sent, privates)
        if isinstance(found, Rows):
            return Answer(outbox.put(found.stacked), len(found))
        return Answer(outbox.put(found), None)

    with suppress(EOFError, OSError):  # the parent has gone
        while True:
            pipe.send(answer_or_error(serve, pipe.recv()))
