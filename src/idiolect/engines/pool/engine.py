"""pool: one worker process per core, one intra-op thread each.

A worker runs the same code as ``loop``, and takes the next clients when it is free; or as ``cohort`` where that is
faster, with its share of the clients at once.  The numbers are theirs.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import Any

from torch import Tensor

from idiolect.core import Program, Tree
from idiolect.core.trees import Rows, tree_leaves, tree_map
from idiolect.engines.cohort.engine import CohortEngine
from idiolect.engines.contract import Logits, Outcome
from idiolect.engines.cpu_tuning import keep_freed_memory
from idiolect.engines.pool.worker import Ahead, Luggage, Task, Worker, start_worker
from idiolect.engines.worker_calls import TRIES, Call, batches_well, hands_for
from idiolect.engines.workload import Workload
from idiolect.errors import UserError
from idiolect.federation import ByClient, Store

__all__ = ["Collected", "PoolEngine"]


@dataclass
class PoolEngine:
    """Args:
    workers: processes; None takes one for every core this process may use.
    say: hears of a worker that died and was replaced.
    """

    work: Workload
    workers: int | None = None
    say: Callable[[str], None] = lambda sentence: None
    _running: list[Worker] = field(default_factory=list)
    _program: Program | None = None
    _luggage: Luggage | None = None
    _expected: tuple[Program, list[int]] | None = None

    def prepare(self, program: Program, clients: list[int]) -> None:
        """Has the workers prepare the round after the next one while the answers of the next one are merged."""
        self._expected = program, clients

    def round(
        self, program: Program, server: Tree, privates: Mapping[int, Tree], observe: bool
    ) -> Sequence[Outcome]:
        return self._map(Call("round", program.clock, observe), program, server, privates)

    def plan_ahead(self, upcoming: Iterator[tuple[Program, list[int]]]) -> None:
        """Does nothing: ``prepare`` has told the workers."""

    def settle(
        self, program: Program, phase: str, server: Tree, privates: Mapping[int, Tree]
    ) -> Sequence[Tree]:
        return self._map(Call("settle", program.clock, phase), program, server, privates)

    def evaluate(
        self, program: Program, server: Tree, privates: Mapping[int, Tree], split: str
    ) -> Sequence[Logits]:
        return self._map(Call("evaluate", program.clock, split), program, server, privates)

    def residence(self, store: Store) -> Store:
        """Returns the store itself: this engine keeps no rows."""
        return store

    def close(self) -> None:
        for worker in self._running:
            worker.close()
        self._running.clear()
        if self._luggage is not None:
            self._luggage.close()
            self._luggage = None

    def _map(self, call: Call, program: Program, server: Tree, privates: Mapping[int, Tree]) -> Sequence[Any]:
        """Hands out ``call`` and puts the answers in the order of ``privates``."""
        if not privates:
            return []
        busy: dict[Any, tuple[Worker, list[int]]] = {}
        died: dict[tuple[int, ...], int] = {}
        found = Collected(privates)
        private = (
            privates if isinstance(privates, ByClient) else ByClient(list(privates), list(privates.values()))
        )
        try:
            letter = self._bind(program).server.put(server)
            waiting = deque(hands_for(self.work, program, call, privates, len(self._running)))
            while waiting or busy:
                for worker in self._running:
                    if waiting and worker.pipe not in busy:
                        hand = waiting.popleft()
                        rows = worker.inbox.put_all(private.only(hand).values())
                        busy[worker.pipe] = worker, hand
                        worker.send(Task(call, letter, hand, rows))
                self._look_ahead()
                for pipe in wait(list(busy)):
                    worker, hand = busy.pop(pipe)
                    answer = worker.answer()
                    if answer is None:
                        died[tuple(hand)] = died.get(tuple(hand), 0) + 1
                        self._replace(worker, hand, died[tuple(hand)])
                        waiting.appendleft(hand)
                    else:
                        found.add(hand, worker.read(answer))
        except BaseException:
            self.close()
            raise
        return found.all()

    def _look_ahead(self) -> None:
        """Tells every worker, which reads it when its task is done, what it will be given in the expected round."""
        if self._expected is None:
            return
        (program, clients), self._expected = self._expected, None
        if batches_well(self.work, program) and len(clients) <= len(self._running) * CohortEngine.chunk:
            call = Call("round", program.clock, False)
            hands = hands_for(self.work, program, call, clients, len(self._running))
            for worker, hand in zip(self._running, hands, strict=False):
                worker.send(Ahead(program.clock, hand))

    def _bind(self, program: Program) -> Luggage:
        """Starts the workers for this method, task and scene; a moment of the run is sent with each call."""
        bound, luggage = self._program, self._luggage
        if luggage is not None and bound is not None and replace(program, clock=bound.clock) == bound:
            return luggage
        self.close()
        self._program = program
        self._luggage = luggage = Luggage(self.work, program)
        keep_freed_memory()
        for _ in range(self.workers or len(os.sched_getaffinity(0))):
            self._running.append(start_worker(luggage))
        return luggage

    def _replace(self, worker: Worker, hand: list[int], deaths: int) -> None:
        code = worker.exit_code()
        what = f"worker process {worker.process} died" + (
            f" with exit code {code}" if code is not None else ""
        )
        if deaths == TRIES:
            raise UserError(
                f"{what} as did {TRIES - 1} before it on clients {hand}; "
                "the machine may be out of memory: try --engine loop"
            )
        self.say(f"{what}; another trains its clients {hand} again")
        place = self._running.index(worker)
        worker.close()
        del self._running[place]
        assert self._luggage is not None
        self._running.insert(place, start_worker(self._luggage))


class Collected:
    """What is stacked is copied to its place once, and stays stacked."""

    def __init__(self, clients: Iterable[int]) -> None:
        self._place = {client: i for i, client in enumerate(clients)}
        self._stacked: Tree = None
        self._alone: dict[int, Any] = {}

    def add(self, clients: Sequence[int], answers: Sequence[Any]) -> None:
        """Args:
        answers: of the clients; those of ``Rows`` may lie in memory that is written over later.
        """
        if not isinstance(answers, Rows):
            self._alone |= dict(zip(clients, answers, strict=True))
            return
        if self._stacked is None:
            self._stacked = tree_map(self._room, answers.stacked)
        places = [self._place[client] for client in clients]
        for room, rows in zip(tree_leaves(self._stacked), tree_leaves(answers.stacked), strict=True):
            room.numpy()[places] = rows.numpy()  # by one thread: other workers are still busy

    def all(self) -> Sequence[Any]:
        if not self._alone:
            return Rows(self._stacked, len(self._place))
        together = list(Rows(self._stacked, len(self._place))) if self._stacked is not None else []
        return [
            self._alone[client] if client in self._alone else together[i] for client, i in self._place.items()
        ]

    def _room(self, rows: Tensor) -> Tensor:
        return rows.new_empty(len(self._place), *rows.shape[1:])
