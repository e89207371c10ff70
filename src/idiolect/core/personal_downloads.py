"""The server where it tells clients apart: what it keeps of each of them, and what it sends to each alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from idiolect.core.client import Program, call
from idiolect.core.context import Messages, ServerState
from idiolect.core.method import Method
from idiolect.core.part import Initial, Kept, Model, Part, ServerView, Uploaded
from idiolect.core.trees import Slot, stack, tree_map

__all__ = ["first_download", "init_kept", "keep_uploads", "make_downloads", "without_replaced"]


@dataclass(frozen=True)
class Unheard:
    """What the server keeps of each client for one part, before it has heard from any."""

    first: Slot

    @property
    def clients(self) -> list[int]:
        return []

    def rows(self, clients: Sequence[int]) -> Slot:
        return stack([self.first] * len(clients))

    def blocks(self) -> Iterator[tuple[list[int], Slot]]:
        yield from ()


def init_kept(method: Method, initial: Initial, population: int) -> dict[str, Slot]:
    """Returns by part what the server keeps of a client that it has not heard from."""
    return {p.name: call(p, "init_kept", initial, population) for p in method.parts if p.init_kept}


def first_download(program: Program, server: ServerState, initial: Initial) -> dict[str, Slot]:
    """Returns by part what the server sends one client alone before it has heard from anybody."""
    first = init_kept(program.method, initial, program.clock.population)
    found = make_downloads(program, server, [0], lambda part: Unheard(first.get(part, {})), seed=0)
    return tree_map(lambda leaf: leaf[0], found)


def make_downloads(
    program: Program, server: ServerState, clients: Sequence[int], kept: Callable[[str], Kept], seed: int
) -> dict[str, Slot]:
    """Returns by part what the server sends each of these clients alone, stacked over them.

    Args:
        kept: returns what the server keeps of each client for the part of this name.
    """
    return {
        part.name: call(part, "personal_download", clients, _view(program, server, part, kept, seed))
        for part in program.method.parts
        if part.personal_download
    }


def keep_uploads(
    program: Program,
    server: ServerState,
    clients: Sequence[int],
    messages: Messages,
    kept: Callable[[str], Kept],
    seed: int,
) -> tuple[ServerState, list[int], dict[str, Slot]]:
    """Lets parts look at the single uploads of a round, after the merge and the server's own stages.

    Args:
        clients: whose uploads the messages are; of two uploads of one client the later one counts.

    Returns:
        The server's state, and by part what is kept from now on of each client in the list, stacked.
    """
    newest = {client: place for place, client in enumerate(clients)}
    places, slots, rows = torch.tensor(list(newest.values())), dict(server["slots"]), {}
    for part in program.method.parts:
        if part.keep:
            value, weight = tree_map(
                lambda leaf: leaf.index_select(0, places.to(leaf.device)),
                _message(program.method, part, messages),
            )
            uploaded = Uploaded(list(newest), value, weight)
            row, slot = call(part, "keep", uploaded, _view(program, server, part, kept, seed))
            if part.init_kept:
                rows[part.name] = row
            if part.init_server:
                slots[part.name] = slot
    return {**server, "slots": slots}, list(newest), rows


def without_replaced(sent: ServerState, downloads: dict[str, Slot]) -> ServerState:
    """Returns what travels to every client, without shared parameters in whose place each gets its own."""
    own = {name for slot in downloads.values() for name in slot.get("params", {})}
    return {**sent, "params": {name: leaf for name, leaf in sent["params"].items() if name not in own}}


def _view(
    program: Program, server: ServerState, part: Part, kept: Callable[[str], Kept], seed: int
) -> ServerView:
    shared = Model(server["params"], server["buffers"])
    slot = server["slots"].get(part.name, {})
    return ServerView(shared, slot, kept(part.name), program.clock, program.task, seed)


def _message(method: Method, part: Part, messages: Messages) -> tuple[Slot, torch.Tensor]:
    """Returns a part's own message, else that of the server update."""
    updates = (p.name for p in method.parts if "server update" in p.roles)
    return messages[part.name if part.upload else next(updates)]
