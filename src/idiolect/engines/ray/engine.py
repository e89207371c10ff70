"""ray: the cohort sharded over the workers of a Ray cluster, which keep their clients' private rows between rounds.

A call goes to each worker once, with its clients; the server's state goes through the object store once for all.
What comes back in place of a private tree is a receipt.  A row that is lost with its worker is made again from the
last copy that the driver has, by the same calls: all of them are seeded and pure, so that the numbers are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from idiolect.core import Program, Tree
from idiolect.core.trees import flatten, tree_leaves
from idiolect.engines.balance import share_out
from idiolect.engines.contract import Logits, Outcome
from idiolect.engines.numpy_trees import copied_tensors, to_arrays
from idiolect.engines.ray.connection import connect
from idiolect.engines.ray.messages import (
    Answer,
    Errand,
    Given,
    Held,
    Lost,
    Moved,
    Receipt,
    Redone,
    Source,
    Step,
)
from idiolect.engines.ray.residence import Entry, Ledger, Residence
from idiolect.engines.ray.workers import Crew
from idiolect.engines.worker_calls import TRIES, Call, amounts
from idiolect.engines.workload import Workload
from idiolect.errors import UserError
from idiolect.federation import Store

__all__ = ["RayEngine"]


@dataclass
class RayEngine:
    """Args:
    workers: of the cluster; None takes one for every core it has, or one for every share of a GPU.
    address: of the cluster; None for ``RAY_ADDRESS``, or a cluster of its own on this machine.
    gpus_per_worker: a share of a GPU will do; 0 computes on cores.
    copy_every: shared models after which the driver takes a copy of the rows that changed.
    say: hears of a worker that died.
    """

    work: Workload
    workers: int | None = None
    address: str | None = None
    gpus_per_worker: float = 0.0
    copy_every: int = 5
    say: Callable[[str], None] = lambda sentence: None
    _crew: Crew | None = None
    _disconnect: Callable[[], None] | None = None
    _ledger: Ledger = field(default_factory=Ledger)
    _program: tuple[Program, Any] | None = None
    _server: tuple[Tree, Any] | None = None
    _since_copy: set[Any] = field(default_factory=set)

    def prepare(self, program: Program, clients: list[int]) -> None:
        """Does nothing: workers get a round when it begins."""

    def round(
        self, program: Program, server: Tree, privates: Mapping[int, Tree], observe: bool
    ) -> list[Outcome]:
        return self._map(Call("round", program.clock, observe), program, server, privates)

    def plan_ahead(self, upcoming: Iterator[tuple[Program, list[int]]]) -> None:
        """Does nothing."""

    def settle(self, program: Program, phase: str, server: Tree, privates: Mapping[int, Tree]) -> list[Tree]:
        return self._map(Call("settle", program.clock, phase), program, server, privates)

    def evaluate(
        self, program: Program, server: Tree, privates: Mapping[int, Tree], split: str
    ) -> list[Logits]:
        return self._map(Call("evaluate", program.clock, split), program, server, privates)

    def residence(self, store: Store) -> Residence:
        """Returns rows that stay with the workers; copies of them go to ``store``."""
        return Residence(store, self)

    def fetch(self, receipts: dict[int, Receipt]) -> dict[int, Tree]:
        """The rows that receipts stand for."""
        if not receipts:
            return {}
        assert self._program is not None and self._server is not None
        program, server = self._program[0], self._server[0]
        rows = self._map(Call("fetch", program.clock, None), program, server, receipts)
        return dict(zip(receipts, rows, strict=True))

    def copied(self, receipts: Iterable[Receipt], recall: Callable[[int], Tree]) -> None:
        """The driver has a copy of these rows, which ``recall`` gives by client."""
        for receipt in receipts:
            entry = self._ledger.entries[receipt.number]
            entry.base, entry.steps = _recalling(recall, entry.client), ()
        self._since_copy.clear()

    def release(self, receipts: Iterable[Receipt]) -> None:
        """Nobody will ask for these rows again."""
        gone = [(receipt.number, self._ledger.entries.pop(receipt.number)) for receipt in receipts]
        if self._crew is not None:
            self._crew.drop((entry.owner, edition) for edition, entry in gone)

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

    def _map(self, call: Call, program: Program, server: Tree, privates: Mapping[int, Tree]) -> list[Any]:
        """Has ``call`` answered for every client, in the order of ``privates``."""
        crew = self._ready()
        step = Step(call, self._reference_to(program), self._broadcast(server))
        dispatch = Dispatch(
            crew, self._ledger, step, self._amounts(program, call, privates), privates, self.say
        )
        try:
            answers = dispatch.run()
        except BaseException:
            self._dismiss()
            raise
        if dispatch.kept_rows:
            self._since_copy.add(step.server)
        return answers

    def _amounts(self, program: Program, call: Call, privates: Mapping[int, Tree]) -> dict[int, int]:
        if call.name == "fetch":
            return dict.fromkeys(privates, 0)
        return amounts(self.work, program, call, privates)

    def _ready(self) -> Crew:
        """The workers, started when they are first needed."""
        if self._disconnect is None:
            self._disconnect = connect(self.address, self.workers)
        if self._crew is None:
            self._crew = Crew(self.work, self.workers, self.gpus_per_worker, self.say)
        return self._crew

    def _dismiss(self) -> None:
        """Ends the workers; what they kept can be made again."""
        if self._crew is not None:
            for worker in list(self._crew.members):
                self._ledger.lose(worker)
            self._crew.close()
            self._crew = None

    def _reference_to(self, program: Program) -> Any:
        """The method, task and scene in the object store; a moment of the run is sent with each call."""
        if self._program is None or replace(program, clock=self._program[0].clock) != self._program[0]:
            self._program = program, ray.put(program)
        return self._program[1]

    def _broadcast(self, server: Tree) -> Any:
        """The server's state in the object store, once for every state."""
        if self._server is None or not _same(self._server[0], server):
            self._server = server, ray.put(to_arrays(server))
        return self._server[1]


def _same(one: Tree, other: Tree) -> bool:
    """Whether two trees consist of the very same tensors, of which none is ever written to."""
    ours, theirs = flatten(one), flatten(other)
    return ours[1] == theirs[1] and all(a is b for a, b in zip(ours[0], theirs[0], strict=True))


def _recalling(recall: Callable[[int], Tree], client: int) -> Callable[[], Tree]:
    return lambda: recall(client)


CHANGES = ("round", "settle")  # calls that give clients new rows


class Dispatch:
    """Args:
    amount: work of each client.
    privates: by client its row, or the receipt for it.
    say: hears of workers that died.

    Attributes:
        kept_rows: workers keep rows that this call has made.
    """

    def __init__(
        self,
        crew: Crew,
        ledger: Ledger,
        step: Step,
        amount: Mapping[int, int],
        privates: Mapping[int, Tree],
        say: Callable[[str], None],
    ) -> None:
        self._crew, self._ledger, self._step = crew, ledger, step
        self._amount, self._privates, self._say = amount, privates, say
        self._busy: dict[Any, tuple[int, Errand]] = {}
        self._deaths: Counter[int] = Counter()
        self._found: dict[int, Any] = {}
        self._times: dict[int, tuple[float, float]] = {}
        self.kept_rows = False

    def run(self) -> list[Any]:
        """The answers in the order of the clients."""
        waiting = list(self._privates)
        while waiting or self._busy:
            if waiting:
                self._hand_out(waiting)
            (reference,), _ = ray.wait(list(self._busy))
            waiting = self._take(reference)
        self._crew.measure(self._times)
        return [self._found[client] for client in self._privates]

    def _hand_out(self, clients: list[int]) -> None:
        """To the workers that have nothing to do; if all have, to all."""
        members = self._crew.members
        idle = set(members) - {worker for worker, _ in self._busy.values()} or set(members)
        amount = {client: self._amount[client] for client in clients}
        owners = {client: entry.owner for client in clients if (entry := self._entry(client))}
        shares = share_out(amount, owners, {worker: members[worker].speed for worker in sorted(idle)})
        errands = {worker: self._errand(worker, mine) for worker, mine in shares.items()}
        for worker, errand in errands.items():
            self._busy[self._crew.send(worker, errand, self._step.server)] = worker, errand

    def _errand(self, worker: int, clients: list[int]) -> Errand:
        sources = {client: self._source(worker, client) for client in clients}
        changes = self._step.call.name in CHANGES
        editions = {client: self._ledger.new_edition() for client in clients} if changes else {}
        return Errand(self._step, sources, editions, self._crew.take_drops(worker))

    def _source(self, worker: int, client: int) -> Source:
        entry = self._entry(client)
        if entry is None:
            return Given(to_arrays(self._privates[client]))
        edition = self._privates[client].number
        if entry.owner is None:
            return Redone(edition, to_arrays(entry.base()), entry.steps)
        return (
            Held(edition) if entry.owner == worker else Moved(edition, self._crew.give(entry.owner, edition))
        )

    def _entry(self, client: int) -> Entry | None:
        """What is known of a row for which there is a receipt."""
        private = self._privates[client]
        return self._ledger.entries[private.number] if isinstance(private, Receipt) else None

    def _take(self, reference: Any) -> list[int]:
        """Takes an answer in; clients whose work has to be handed out again."""
        worker, errand = self._busy.pop(reference)
        answer = self._crew.answer(reference)
        if isinstance(answer, Answer):
            self._take_in(worker, errand, answer)
            return []
        if isinstance(answer, Lost):
            self._ledger.misplace(answer.editions)
        else:
            self._replace(worker, list(errand.sources))
        return list(errand.sources)

    def _take_in(self, worker: int, errand: Errand, answer: Answer) -> None:
        self._times[worker] = float(sum(self._amount[client] for client in errand.sources)), answer.seconds
        for client, found in zip(errand.sources, answer.found, strict=True):
            self._found[client] = copied_tensors(found)
            entry = self._entry(client)
            if entry is not None and entry.owner != worker:
                self._crew.drop([(entry.owner, self._privates[client].number)])
                entry.owner = worker
            if errand.editions and tree_leaves(_private(found)):
                self._enter(client, worker, errand.editions[client], entry)

    def _enter(self, client: int, worker: int, edition: int, before: Entry | None) -> None:
        """The row that a worker has made, and how it would be made again."""
        given = self._privates[client]
        base, steps = (before.base, before.steps) if before else (lambda: given, ())
        self._ledger.entries[edition] = Entry(client, worker, base, (*steps, self._step))
        self.kept_rows = True

    def _replace(self, worker: int, clients: list[int]) -> None:
        self._deaths.update(clients)
        died = f"{self._crew.members[worker]} died"
        if max(self._deaths[client] for client in clients) == TRIES:
            raise UserError(
                f"{died} as did {TRIES - 1} before it on clients {clients}; the node may be out of memory: try fewer "
                "workers on it"
            )
        rows = self._ledger.lose(worker)
        came = self._crew.replace(worker)
        instead = "another" if came else "the others, there being no room for another,"
        self._say(
            f"{died}; {instead} trains its clients {clients} again and makes the {rows} rows anew that it kept"
        )


def _private(found: Any) -> Tree:
    return found.private if hasattr(found, "private") else found
