"""The engine ``ray``: splits the cohort over the workers of a Ray cluster, which keep private rows between rounds.

A call goes to each worker once, with its clients; the server's state goes through the object store once for all
workers.  In place of a private tree a receipt comes back.  A row that is lost with its worker is computed again from
the last copy that the driver has, by the same calls: all of them are seeded and pure, so the numbers are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from idiolect.core import Program, ServerState, Tree
from idiolect.core.trees import flatten, tree_leaves
from idiolect.engines.balance import shares_by_owner
from idiolect.engines.contract import Logits, Outcome, StagesDone, nobody
from idiolect.engines.device_data import Workload
from idiolect.engines.numpy_trees import copied_tensors, to_arrays
from idiolect.engines.process_pickling import UNSENDABLE, cannot_be_sent, dumped
from idiolect.engines.ray.connection import connect
from idiolect.engines.ray.messages import (
    KeptRow,
    LostRows,
    MovedRow,
    RecomputedRow,
    Reference,
    RemoteCall,
    RowReceipt,
    RowSource,
    SentRow,
    WorkerAnswer,
    WorkerRequest,
    private_of,
)
from idiolect.engines.ray.residence import LedgerEntry, ResidentRows, RowLedger
from idiolect.engines.ray.workers import RayWorkers
from idiolect.engines.worker_calls import TRIES, EngineCall, amounts
from idiolect.errors import UserError
from idiolect.federation import Store

__all__ = ["RayEngine"]

CHANGES = ("round", "settle")  # calls that give clients new rows


@dataclass
class RayEngine:
    """Runs clients in the workers of a Ray cluster.

    Args:
        workers: of the cluster; None takes one for every core that it has, or one for every share of a GPU.
        address: of the cluster; None takes ``RAY_ADDRESS``, or starts a cluster on this machine.
        gpus_per_worker: may be a part of a GPU; 0 computes on cores.
        copy_every: shared models after which the driver copies the rows that changed.
        say: is told of a worker that died.
    """

    work: Workload
    workers: int | None = None
    address: str | None = None
    gpus_per_worker: float = 0.0
    copy_every: int = 5
    say: Callable[[str], None] = lambda sentence: None
    _keeps_rows: bool = False  # whether rows stay with the workers, as ``residence`` arranges
    _workers: RayWorkers | None = None
    _disconnect: Callable[[], None] | None = None
    _ledger: RowLedger = field(default_factory=RowLedger)
    _program: tuple[Program, Reference] | None = None
    _server: tuple[ServerState, Reference] | None = None
    _since_copy: set[Reference] = field(default_factory=set)

    def prepare(self, program: Program, clients: list[int]) -> None:
        """Does nothing: workers get a round when it begins."""

    def round(
        self, program: Program, server: ServerState, privates: Mapping[int, Tree], observe: bool
    ) -> list[Outcome]:
        return self._map(EngineCall("round", program.clock, observe), program, server, privates)

    def plan_ahead(self, upcoming: Iterator[tuple[Program, list[int]]]) -> None:
        """Does nothing: batches are planned by the workers."""

    def settle(
        self,
        program: Program,
        phase: str,
        server: ServerState,
        privates: Mapping[int, Tree],
        progress: StagesDone = nobody,
    ) -> list[Tree]:
        return self._map(EngineCall("settle", program.clock, phase), program, server, privates)

    def evaluate(
        self, program: Program, server: ServerState, privates: Mapping[int, Tree], split: str
    ) -> list[Logits]:
        return self._map(EngineCall("evaluate", program.clock, split), program, server, privates)

    def residence(self, store: Store) -> ResidentRows:
        """Returns rows that stay with the workers; copies of them go to ``store``."""
        self._keeps_rows = True
        return ResidentRows(store, self)

    def fetch(self, receipts: dict[int, RowReceipt]) -> dict[int, Tree]:
        """Returns the rows that receipts stand for."""
        if not receipts:
            return {}
        assert self._program is not None and self._server is not None
        program, server = self._program[0], self._server[0]
        rows = self._map(EngineCall("fetch", program.clock, None), program, server, receipts)
        return dict(zip(receipts, rows, strict=True))

    def copied(self, receipts: Iterable[RowReceipt], recall: Callable[[int], Tree]) -> None:
        """Notes that the driver has a copy of these rows.

        Args:
            recall: returns the copy of a client's row.
        """
        for receipt in receipts:
            entry = self._ledger.entries[receipt.number]
            entry.base, entry.calls = _recalling(recall, entry.client), ()
        self._since_copy.clear()

    def release(self, receipts: Iterable[RowReceipt]) -> None:
        """Has the workers forget rows that nobody will ask for again."""
        gone = [(receipt.number, self._ledger.entries.pop(receipt.number)) for receipt in receipts]
        if self._workers is not None:
            self._workers.drop((entry.owner, edition) for edition, entry in gone)

    @property
    def copy_is_due(self) -> bool:
        return len(self._since_copy) >= self.copy_every

    def close(self) -> None:
        self._dismiss()
        self._program = self._server = None
        self._since_copy.clear()
        self._ledger.entries.clear()
        if self._disconnect is not None:
            self._disconnect()
            self._disconnect = None

    def _map(
        self, call: EngineCall, program: Program, server: ServerState, privates: Mapping[int, Tree]
    ) -> list[Any]:
        """Returns the answers of all clients to ``call``, in the order of ``privates``."""
        workers = self._ready()
        remote = RemoteCall(call, self._reference_to(program), self._broadcast(server))
        amount = self._amounts(program, call, privates)
        dispatch = _Dispatch(workers, self._ledger, remote, amount, privates, self.say, self._keeps_rows)
        try:
            answers = dispatch.run()
        except BaseException:
            self._dismiss()
            raise
        if dispatch.kept_rows:
            self._since_copy.add(remote.server)
        return answers

    def _amounts(self, program: Program, call: EngineCall, privates: Mapping[int, Tree]) -> dict[int, int]:
        if call.name == "fetch":
            return dict.fromkeys(privates, 0)
        return amounts(self.work, program, call, privates)

    def _ready(self) -> RayWorkers:
        """Returns the workers, which are started when they are first needed."""
        if self._disconnect is None:
            self._disconnect = connect(self.address, self.workers)
        if self._workers is None:
            self._workers = RayWorkers(self.work, self.workers, self.gpus_per_worker, self.say)
        return self._workers

    def _dismiss(self) -> None:
        """Ends the workers; the rows that they kept can be computed again."""
        if self._workers is not None:
            for worker in list(self._workers.members):
                self._ledger.lose(worker)
            self._workers.close()
            self._workers = None

    def _reference_to(self, program: Program) -> Reference:
        """Puts method, task and scene into the object store, once for each program; every call brings its clock."""
        if self._program is None or replace(program, clock=self._program[0].clock) != self._program[0]:
            try:
                content = dumped(program)
            except UNSENDABLE as error:
                raise cannot_be_sent(program, error) from error
            self._program = program, ray.put(content)
        return self._program[1]

    def _broadcast(self, server: ServerState) -> Reference:
        """Puts the server's state into the object store, once for each state."""
        if self._server is None or not _same(self._server[0], server):
            self._server = server, ray.put(to_arrays(server))
        return self._server[1]


class _Dispatch:
    """One call in progress: its clients are shared out to the workers, and again where a worker died.

    Args:
        call: with the references that workers need.
        amount: work of each client.
        privates: by client its row, or the receipt for it.
        say: is told of workers that died.
        keeps_rows: whether workers keep the rows that the call makes.

    Attributes:
        kept_rows: whether workers keep rows that this call has made.
    """

    def __init__(
        self,
        workers: RayWorkers,
        ledger: RowLedger,
        call: RemoteCall,
        amount: Mapping[int, int],
        privates: Mapping[int, Tree],
        say: Callable[[str], None],
        keeps_rows: bool,
    ) -> None:
        self._changes = keeps_rows and call.call.name in CHANGES
        self._workers, self._ledger, self._call = workers, ledger, call
        self._amount, self._privates, self._say = amount, privates, say
        self._busy: dict[Reference, tuple[int, WorkerRequest]] = {}
        self._deaths: Counter[int] = Counter()
        self._found: dict[int, Any] = {}
        self._times: dict[int, tuple[float, float]] = {}
        self.kept_rows = False

    def run(self) -> list[Any]:
        """Returns the answers in the order of the clients."""
        waiting = list(self._privates)
        while waiting or self._busy:
            if waiting:
                self._share_out(waiting)
            (reference,), _ = ray.wait(list(self._busy))
            waiting = self._take(reference)
        self._workers.measure(self._times)
        return [self._found[client] for client in self._privates]

    def _share_out(self, clients: list[int]) -> None:
        """Sends requests for these clients to the idle workers; if all workers are busy, to all of them."""
        members = self._workers.members
        idle = set(members) - {worker for worker, _ in self._busy.values()} or set(members)
        amount = {client: self._amount[client] for client in clients}
        owners = {client: entry.owner for client in clients if (entry := self._entry(client))}
        shares = shares_by_owner(amount, owners, {worker: members[worker].speed for worker in sorted(idle)})
        requests = {worker: self._request(worker, mine) for worker, mine in shares.items()}
        for worker, request in requests.items():
            self._busy[self._workers.send(worker, request, self._call.server)] = worker, request

    def _request(self, worker: int, clients: list[int]) -> WorkerRequest:
        sources = {client: self._source(worker, client) for client in clients}
        editions = {client: self._ledger.new_edition() for client in clients} if self._changes else {}
        return WorkerRequest(self._call, sources, editions, self._workers.take_drops(worker))

    def _source(self, worker: int, client: int) -> RowSource:
        """Returns where a worker finds a client's row."""
        private = self._privates[client]
        if not isinstance(private, RowReceipt):
            return SentRow(to_arrays(private))
        edition = private.number
        entry = self._ledger.entries[edition]
        if entry.owner is None:
            return RecomputedRow(edition, to_arrays(entry.base()), entry.calls)
        if entry.owner == worker:
            return KeptRow(edition)
        return MovedRow(edition, self._workers.give(entry.owner, edition))

    def _entry(self, client: int) -> LedgerEntry | None:
        """Returns what is known of a row for which there is a receipt."""
        private = self._privates[client]
        return self._ledger.entries[private.number] if isinstance(private, RowReceipt) else None

    def _take(self, reference: Reference) -> list[int]:
        """Takes an answer in; returns the clients whose work has to be shared out again."""
        worker, request = self._busy.pop(reference)
        answer = self._workers.answer(reference)
        if isinstance(answer, WorkerAnswer):
            self._take_in(worker, request, answer)
            return []
        if isinstance(answer, LostRows):
            self._ledger.misplace(answer.editions)
        else:
            self._replace(worker, list(request.sources))
        return list(request.sources)

    def _take_in(self, worker: int, request: WorkerRequest, answer: WorkerAnswer) -> None:
        self._times[worker] = float(sum(self._amount[client] for client in request.sources)), answer.seconds
        for client, found in zip(request.sources, answer.found, strict=True):
            self._found[client] = copied_tensors(found)
            given, entry = self._privates[client], self._entry(client)
            if isinstance(given, RowReceipt) and entry is not None and entry.owner != worker:
                self._workers.drop([(entry.owner, given.number)])
                entry.owner = worker
            if request.editions and tree_leaves(private_of(found)):
                self._enter(client, worker, request.editions[client], entry)

    def _enter(self, client: int, worker: int, edition: int, before: LedgerEntry | None) -> None:
        """Enters the row that a worker has made, and how it would be computed again, into the ledger."""
        given = self._privates[client]
        base, calls = (before.base, before.calls) if before else (lambda: given, ())
        self._ledger.entries[edition] = LedgerEntry(client, worker, base, (*calls, self._call))
        self.kept_rows = True

    def _replace(self, worker: int, clients: list[int]) -> None:
        """Starts another worker in place of one that died."""
        self._deaths.update(clients)
        died = f"{self._workers.members[worker]} died"
        if max(self._deaths[client] for client in clients) == TRIES:
            raise UserError(
                f"{died} as did {TRIES - 1} before it on clients {clients}; the node may be out of memory: try fewer "
                "workers on it"
            )
        rows = self._ledger.lose(worker)
        came = self._workers.replace(worker)
        lost = f"its clients {clients} again and {{}} the {rows} rows that it kept"
        if came:
            then = "another trains " + lost.format("recomputes")
        else:
            then = "there is no room for another; the others train " + lost.format("recompute")
        self._say(f"{died}; {then}")


def _same(one: ServerState, other: ServerState) -> bool:
    """Returns whether two trees consist of the very same tensors, of which none is ever written to."""
    ours, theirs = flatten(one), flatten(other)
    return ours[1] == theirs[1] and all(a is b for a, b in zip(ours[0], theirs[0], strict=True))


def _recalling(recall: Callable[[int], Tree], client: int) -> Callable[[], Tree]:
    return lambda: recall(client)
