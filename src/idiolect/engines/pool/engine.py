"""The engine ``pool``: worker processes on this machine, one per core, with one intra-op thread each.

A worker runs the same code as ``loop`` and takes the next share of clients whenever it is free.  Where many clients at
once are faster on a core, it runs its share of the clients as ``cohort`` does.  The numbers are those of these engines.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any, cast

from torch import Tensor

from idiolect.core import Program, ServerState, Tree
from idiolect.core.trees import Rows, tree_leaves, tree_map
from idiolect.engines.cohort.engine import CohortEngine
from idiolect.engines.contract import Logits, Outcome, StagesDone, nobody
from idiolect.engines.cpu_tuning import keep_freed_memory
from idiolect.engines.device_data import Workload
from idiolect.engines.pool.worker import (
    ComingRound,
    PoolWorker,
    StagesOfTask,
    WorkerData,
    WorkerTask,
    start_worker,
)
from idiolect.engines.worker_calls import TRIES, EngineCall, batches_well, shares_for
from idiolect.errors import UserError
from idiolect.federation import ByClient, Store

__all__ = ["CollectedAnswers", "PoolEngine"]


@dataclass
class PoolEngine:
    """Runs clients in worker processes on this machine.

    Args:
        workers: processes; None takes one for every core that this process may use.
        say: is told of a worker that died and was replaced.
    """

    work: Workload
    workers: int | None = None
    say: Callable[[str], None] = lambda sentence: None
    _running: list[PoolWorker] = field(default_factory=list)
    _program: Program | None = None
    _data: WorkerData | None = None
    _coming: tuple[Program, list[int]] | None = None

    def prepare(self, program: Program, clients: list[int]) -> None:
        """Has the workers prepare the round after the next one while the answers of the next one are merged."""
        self._coming = program, clients

    def round(
        self, program: Program, server: ServerState, privates: Mapping[int, Tree], observe: bool
    ) -> Sequence[Outcome]:
        return self._map(EngineCall("round", program.clock, observe), program, server, privates)

    def plan_ahead(self, upcoming: Iterator[tuple[Program, list[int]]]) -> None:
        """Does nothing: ``prepare`` has told the workers."""

    def settle(
        self,
        program: Program,
        phase: str,
        server: ServerState,
        privates: Mapping[int, Tree],
        progress: StagesDone = nobody,
    ) -> Sequence[Tree]:
        return self._map(EngineCall("settle", program.clock, phase), program, server, privates, progress)

    def evaluate(
        self, program: Program, server: ServerState, privates: Mapping[int, Tree], split: str
    ) -> Sequence[Logits]:
        return self._map(EngineCall("evaluate", program.clock, split), program, server, privates)

    def residence(self, store: Store) -> Store:
        """Returns the store itself: workers keep no rows."""
        return store

    def close(self) -> None:
        for worker in self._running:
            worker.close()
        self._running.clear()
        if self._data is not None:
            self._data.close()
            self._data = None

    def _map(
        self,
        call: EngineCall,
        program: Program,
        server: ServerState,
        privates: Mapping[int, Tree],
        progress: StagesDone = nobody,
    ) -> Sequence[Any]:
        """Distributes ``call`` to the workers and returns their answers in the order of ``privates``."""
        if not privates:
            return []
        busy: dict[Connection, tuple[PoolWorker, list[int]]] = {}
        deaths: Counter[tuple[int, ...]] = Counter()
        found, private = CollectedAnswers(privates), _by_client(privates)
        try:
            parcel = self._bind(program).server.put(server)
            waiting = deque(shares_for(self.work, program, call, privates, len(self._running)))
            while waiting or busy:
                for worker in self._running:
                    if waiting and worker.pipe not in busy:
                        share = waiting.popleft()
                        rows = worker.inbox.put_all(private.only(share).values())
                        busy[worker.pipe] = worker, share
                        worker.send(WorkerTask(call, parcel, share, rows))
                self._announce_coming_round()
                for pipe in wait(list(busy)):
                    worker, share = busy[cast(Connection, pipe)]
                    answer = worker.answer()
                    if isinstance(answer, StagesOfTask):
                        progress(answer.done)
                        continue
                    del busy[cast(Connection, pipe)]
                    if answer is not None:
                        found.add(share, worker.read(answer))
                        continue
                    self._replace(worker, share, deaths)
                    waiting.appendleft(share)
        except BaseException:
            self.close()
            raise
        return found.all()

    def _announce_coming_round(self) -> None:
        """Tells every worker, which reads it after its task, which clients it will get in the coming round."""
        if self._coming is None:
            return
        (program, clients), self._coming = self._coming, None
        if batches_well(self.work, program) and len(clients) <= len(self._running) * CohortEngine.chunk:
            call = EngineCall("round", program.clock, False)
            shares = shares_for(self.work, program, call, clients, len(self._running))
            for worker, share in zip(self._running, shares, strict=False):
                worker.send(ComingRound(program.clock, share))

    def _bind(self, program: Program) -> WorkerData:
        """Starts workers for this method, task and scene, unless they run already; each call brings its clock."""
        bound, data = self._program, self._data
        if data is not None and bound is not None and replace(program, clock=bound.clock) == bound:
            return data
        self.close()
        self._program = program
        self._data = data = WorkerData(self.work, program)
        keep_freed_memory()
        for _ in range(self.workers or len(os.sched_getaffinity(0))):
            self._running.append(start_worker(data))
        return data

    def _replace(self, worker: PoolWorker, share: list[int], deaths: Counter[tuple[int, ...]]) -> None:
        """Starts another worker in place of one that died, and counts its death with the share it had."""
        deaths[tuple(share)] += 1
        code = worker.exit_code()
        what = f"worker process {worker.process} died" + (
            f" with exit code {code}" if code is not None else ""
        )
        if deaths[tuple(share)] == TRIES:
            raise UserError(
                f"{what} as did {TRIES - 1} before it on clients {share}; "
                "the machine may be out of memory: try --engine loop"
            )
        self.say(f"{what}; another trains its clients {share} again")
        place = self._running.index(worker)
        worker.close()
        del self._running[place]
        assert self._data is not None
        self._running.insert(place, start_worker(self._data))


def _by_client(privates: Mapping[int, Tree]) -> ByClient:
    return privates if isinstance(privates, ByClient) else ByClient(list(privates), list(privates.values()))


class CollectedAnswers:
    """Puts the answers of workers together in the order of the clients; stacked answers stay stacked."""

    def __init__(self, clients: Iterable[int]) -> None:
        self._place = {client: i for i, client in enumerate(clients)}
        self._stacked: Tree | None = None
        self._alone: dict[int, Any] = {}

    def add(self, clients: Sequence[int], answers: Sequence[Any]) -> None:
        """Adds the answers of some clients.

        Args:
            answers: those of ``Rows`` are copied, so that their memory may be written over later.
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
        """Returns the answers of all clients."""
        if self._stacked is None:
            return [self._alone[client] for client in self._place]
        rows = Rows(self._stacked, len(self._place))
        if not self._alone:
            return rows
        together = list(rows)
        return [
            self._alone[client] if client in self._alone else together[i] for client, i in self._place.items()
        ]

    def _room(self, rows: Tensor) -> Tensor:
        return rows.new_empty(len(self._place), *rows.shape[1:])
