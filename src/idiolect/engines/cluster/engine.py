"""ray: the cohort sharded over the workers of a Ray cluster, which keep their clients' private rows between rounds.

A call goes to each worker once, with its clients; the server's state goes through the object store once for all.
What comes back in place of a private tree is a receipt.  A row that is lost with its worker is made again from the
last copy that the driver has, by the same calls: all of them are seeded and pure, so that the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from idiolect.core import PrivateState, Program, ServerState, Tree
from idiolect.core.trees import flatten
from idiolect.engines.arrays import to_arrays
from idiolect.engines.call import Call, amounts
from idiolect.engines.cluster.crew import Crew
from idiolect.engines.cluster.dispatch import Dispatch
from idiolect.engines.cluster.errand import Receipt, Step
from idiolect.engines.cluster.ledger import Ledger
from idiolect.engines.cluster.residence import Residence
from idiolect.engines.cluster.session import connect
from idiolect.engines.evaluation import Logits
from idiolect.engines.group import Outcome
from idiolect.engines.workload import Workload
from idiolect.federation import Store

__all__ = ["Ray"]


@dataclass
class Ray:
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
    _server: tuple[ServerState, Any] | None = None
    _since_copy: set[Any] = field(default_factory=set)

    def round(
        self, program: Program, server: ServerState, privates: Mapping[int, PrivateState], observe: bool
    ) -> list[Outcome]:
        return self._map(Call("round", program.clock, observe), program, server, privates)

    def settle(
        self, program: Program, phase: str, server: ServerState, privates: Mapping[int, PrivateState]
    ) -> list[PrivateState]:
        return self._map(Call("settle", program.clock, phase), program, server, privates)

    def evaluate(
        self, program: Program, server: ServerState, privates: Mapping[int, PrivateState], split: str
    ) -> list[Logits]:
        return self._map(Call("evaluate", program.clock, split), program, server, privates)

    def residence(self, home: Store) -> Residence:
        """A store of rows that stay with the workers; copies of them go to ``home``."""
        return Residence(home, self)

    def fetch(self, receipts: dict[int, Receipt]) -> dict[int, PrivateState]:
        """The rows that receipts stand for."""
        if not receipts:
            return {}
        assert self._program is not None and self._server is not None
        program, server = self._program[0], self._server[0]
        rows = self._map(Call("fetch", program.clock, None), program, server, receipts)
        return dict(zip(receipts, rows, strict=True))

    def copied(self, receipts: Iterable[Receipt], recall: Callable[[int], PrivateState]) -> None:
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

    def _map(
        self, call: Call, program: Program, server: ServerState, privates: Mapping[int, Any]
    ) -> list[Any]:
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

    def _amounts(self, program: Program, call: Call, privates: Mapping[int, PrivateState]) -> dict[int, int]:
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

    def _broadcast(self, server: ServerState) -> Any:
        """The server's state in the object store, once for every state."""
        if self._server is None or not _same(self._server[0], server):
            self._server = server, ray.put(to_arrays(server))
        return self._server[1]


def _same(one: Tree, other: Tree) -> bool:
    """Whether two trees consist of the very same tensors, of which none is ever written to."""
    ours, theirs = flatten(one), flatten(other)
    return ours[1] == theirs[1] and all(a is b for a, b in zip(ours[0], theirs[0], strict=True))


def _recalling(recall: Callable[[int], PrivateState], client: int) -> Callable[[], PrivateState]:
    return lambda: recall(client)
