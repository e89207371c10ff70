"""pool: one worker process per core, one intra-op thread each, clients dealt out by work.

A worker is a fork: it inherits the data and the method, receives only the server's state and its clients'
private rows, and runs the same code as ``loop``, so the numbers are those of ``loop``.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import traceback
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from idiolect.core import Program, Tree
from idiolect.core.trees import tree_map
from idiolect.engines.evaluation import Logits
from idiolect.engines.group import Outcome
from idiolect.engines.loop import Loop
from idiolect.engines.workload import Workload
from idiolect.errors import UserError

__all__ = ["Pool", "deal"]


def deal(work: dict[int, int], workers: int) -> list[list[int]]:
    """Clients to workers, the longest first to whoever has least.

    >>> deal({0: 5, 1: 3, 2: 2, 3: 1}, 2)
    [[0, 3], [1, 2]]
    """
    hands: list[list[int]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for client in sorted(work, key=lambda c: (-work[c], c)):
        least = loads.index(min(loads))
        hands[least].append(client)
        loads[least] += work[client]
    return hands


class Worker(NamedTuple):
    process: multiprocessing.process.BaseProcess
    pipe: Connection


@dataclass
class Pool:
    """Args:
    workers: processes; None takes one for every core this process may use.
    """

    work: Workload
    workers: int | None = None
    _running: list[Worker] = field(default_factory=list)
    _program: Program | None = None

    def round(
        self, program: Program, server: Tree, privates: dict[int, Tree], observe: bool
    ) -> list[Outcome]:
        return self._map("round", program, privates, (server, observe))

    def settle(self, program: Program, phase: str, server: Tree, privates: dict[int, Tree]) -> list[Tree]:
        return self._map("settle", program, privates, (phase, server))

    def evaluate(self, program: Program, server: Tree, privates: dict[int, Tree], split: str) -> list[Logits]:
        return self._map("evaluate", program, privates, (server, split))

    def close(self) -> None:
        for worker in self._running:
            worker.pipe.close()
            worker.process.join(timeout=5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._running.clear()

    def _map(
        self, call: str, program: Program, privates: dict[int, Tree], arguments: tuple[Any, ...]
    ) -> list[Any]:
        self._fork(program)
        samples = {client: len(self.work.federation.clients[client].train) for client in privates}
        hands = deal(samples, len(self._running))
        for worker, hand in zip(self._running, hands, strict=True):
            if hand:
                mine = {client: privates[client] for client in hand}
                with suppress(OSError):  # a dead worker is named when its answer is missing
                    _send(worker.pipe, (call, program.clock, mine, arguments))
        found: dict[int, Any] = {}
        failed: Exception | None = None
        for worker, hand in zip(self._running, hands, strict=True):
            if hand:
                answer = _answer(worker, hand)
                if isinstance(answer, Exception):
                    failed = answer
                else:
                    found |= dict(zip(hand, answer, strict=True))
        if failed is not None:
            self.close()
            raise failed
        return [found[client] for client in privates]

    def _fork(self, program: Program) -> None:
        """Starts the workers for this method, task and scene; a moment of the run is sent with each call."""
        bound = self._program
        if self._running and bound is not None and replace(program, clock=bound.clock) == bound:
            return
        self.close()
        self._program = program
        fork = multiprocessing.get_context("fork")
        for _ in range(self.workers or len(os.sched_getaffinity(0))):
            ours, theirs = fork.Pipe()
            others = [worker.pipe for worker in self._running] + [ours]
            process = fork.Process(target=_serve, args=(theirs, others, program, self.work), daemon=True)
            process.start()
            theirs.close()
            self._running.append(Worker(process, ours))


def _send(pipe: Connection, value: Any) -> None:
    as_arrays = tree_map(
        lambda leaf: leaf.detach().numpy() if isinstance(leaf, torch.Tensor) else leaf, value
    )
    pipe.send_bytes(pickle.dumps(as_arrays, protocol=5))


def _receive(pipe: Connection) -> Any:
    value = pickle.loads(pipe.recv_bytes())
    # copied into memory of torch's own: rounding depends on how it is aligned
    return tree_map(lambda leaf: torch.tensor(leaf) if type(leaf).__module__ == "numpy" else leaf, value)


def _answer(worker: Worker, hand: list[int]) -> Any:
    try:
        return _receive(worker.pipe)
    except (EOFError, OSError):
        worker.process.join(timeout=5)
        return UserError(
            f"the worker process for clients {hand} died with exit code {worker.process.exitcode}; "
            "it may have run out of memory: try --engine loop"
        )


def _serve(pipe: Connection, others: list[Connection], program: Program, work: Workload) -> None:
    """The life of a worker: one call after the other until the pipe closes."""
    for other in others:
        other.close()
    torch.set_num_threads(1)
    engine = Loop(work)
    while True:
        try:
            call, clock, privates, arguments = _receive(pipe)
        except (EOFError, OSError, KeyboardInterrupt):
            return
        program = replace(program, clock=clock)
        try:
            _send(pipe, _run(engine, call, program, privates, arguments))
        except KeyboardInterrupt:
            return
        except UserError as error:
            _send(pipe, error)
        except Exception as error:
            _send(pipe, RuntimeError(f"{error}\n{traceback.format_exc()}"))


def _run(
    engine: Loop, call: str, program: Program, privates: dict[int, Tree], arguments: tuple[Any, ...]
) -> Any:
    if call == "round":
        server, observe = arguments
        return engine.round(program, server, privates, observe)
    if call == "settle":
        phase, server = arguments
        return engine.settle(program, phase, server, privates)
    server, split = arguments
    return engine.evaluate(program, server, privates, split)
