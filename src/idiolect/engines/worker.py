"""The life of a pool's worker: a fork that serves one call after the other until its pipe closes.

A worker inherits the data and the method, whose pages it shares with its parent, and receives the server's state
and its clients' private rows through shared memory.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from idiolect.core import Clock, Program
from idiolect.engines.cohort import Cohort
from idiolect.engines.loop import Loop
from idiolect.engines.mailbox import Letter, Mailbox
from idiolect.errors import UserError

__all__ = ["Task", "Worker", "start_worker"]


class Task(NamedTuple):
    """One call of an engine for some clients."""

    call: str  # a method of the engine
    clock: Clock
    option: Any  # observe, phase or split
    server: Letter
    privates: Letter


@dataclass(eq=False)
class Worker:
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    inbox: Mailbox
    outbox: Mailbox

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
    _keep_freed_memory()
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
    with suppress(EOFError, OSError):  # the parent has gone
        while True:
            task: Task = pipe.recv()
            pipe.send(_answer(engine, replace(program, clock=task.clock), task, server, inbox, outbox))


def _answer(
    engine: Loop | Cohort, program: Program, task: Task, server: Mailbox, inbox: Mailbox, outbox: Mailbox
) -> Letter | Exception:
    try:
        sent, privates = server.look(task.server), inbox.look(task.privates)
        if task.call == "round":
            return outbox.put(engine.round(program, sent, privates, task.option))
        if task.call == "settle":
            return outbox.put(engine.settle(program, task.option, sent, privates))
        return outbox.put(engine.evaluate(program, sent, privates, task.option))
    except UserError as error:
        return error
    except Exception as error:
        return RuntimeError(f"{error}\n{traceback.format_exc()}")


def _keep_freed_memory() -> None:
    """Tells glibc to re-use large blocks, here and in forks: one given back costs a page fault for every 4 kB anew."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(M_MMAP_THRESHOLD, LARGEST)
            mallopt(M_TRIM_THRESHOLD, LARGEST)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, LARGEST = -1, -3, 2**31 - 1
