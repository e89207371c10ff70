"""One call under way: handed out to the workers, taken in again, and handed out anew where a worker died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import ray

from idiolect.core.trees import tree_leaves
from idiolect.engines.arrays import copied_tensors, to_arrays
from idiolect.engines.call import TRIES
from idiolect.engines.cluster.crew import Crew
from idiolect.engines.cluster.errand import (
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
from idiolect.engines.cluster.ledger import Entry, Ledger
from idiolect.engines.cluster.share_out import share_out
from idiolect.errors import UserError

__all__ = ["Dispatch"]

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
        privates: Mapping[int, Any],
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


def _private(found: Any) -> Any:
    return found.private if hasattr(found, "private") else found
