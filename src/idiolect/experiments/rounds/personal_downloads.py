"""What the server sends to single clients, and what it keeps of each of them for that, during a run.

A method without personal downloads sends every client the same, and this costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from idiolect.core import (
    Messages,
    Program,
    ServerState,
    Slot,
    Tree,
    broadcast,
    keep_uploads,
    make_downloads,
    without_replaced,
)
from idiolect.core.trees import Rows, count_scalars, unstack
from idiolect.experiments.setting import Setting
from idiolect.federation import (
    KEPT_ROWS,
    ByClient,
    KeptUploads,
    stored_rows,
)

__all__ = [
    "BYTES_PER_SCALAR",
    "PersonalDownloads",
    "Sent",
    "broadcast_bytes",
    "kept_of_finished",
]


BYTES_PER_SCALAR = 4


class Sent(NamedTuple):
    """What the server sends to some clients at one moment.

    Args:
        shared: what each of them gets.
        own: by part what each of them alone gets besides, stacked in the order of ``clients``; empty where there is
            nothing of that kind.
    """

    shared: ServerState
    clients: list[int]
    own: dict[str, Slot]

    def with_own(self, privates: Mapping[int, Tree]) -> Mapping[int, Tree]:
        """Returns the clients' private state with what each of them alone got, as engines take it."""
        if not self.own:
            return privates
        rows = privates.values()
        if isinstance(rows, Rows):
            return ByClient(self.clients, Rows({**rows.stacked, "download": self.own}, len(self.clients)))
        each = self.by_client()
        return {client: {**row, "download": each[client]} for client, row in privates.items()}  # type: ignore[dict-item]

    def received_by_one(self) -> ServerState:
        """Returns what the first of the clients gets, its own version of shared parameters in their place."""
        own = self.by_client()[self.clients[0]].values() if self.clients else ()
        replaced = {name: leaf for slot in own for name, leaf in slot.get("params", {}).items()}
        return {**self.shared, "params": {**self.shared["params"], **replaced}}

    def by_client(self) -> dict[int, dict[str, Slot]]:
        """Returns by client, then by part, what it alone gets."""
        if not self.own:
            return {client: {} for client in self.clients}
        return dict(zip(self.clients, unstack(self.own, len(self.clients)), strict=True))


@dataclass
class PersonalDownloads:
    """Makes what the server sends to single clients, and keeps what it must know of each of them.

    Args:
        kept: what the server keeps of each client.
    """

    setting: Setting
    kept: KeptUploads

    @classmethod
    def of(cls, setting: Setting, kept: KeptUploads | None) -> PersonalDownloads:
        """Returns them with what is kept; in memory where nothing is given, and then it cannot be saved."""
        return cls(setting, kept or KeptUploads.in_memory(setting.first_kept, setting.federation.population))

    @property
    def form(self) -> dict[str, Slot]:
        """By part what a client alone gets, which has one form in all rounds."""
        return self.setting.forms[0].download if self.setting.method.downloads else {}

    def bytes_to_one(self, server: ServerState) -> int:
        """Returns the bytes that one client downloads before local work: what all get, and what it alone gets."""
        shared = without_replaced(broadcast(self.setting.method, server), self.form)
        own = BYTES_PER_SCALAR * count_scalars(self.form)
        saved = sum(
            count_scalars(shared["params"]) - part.scalars_down(shared["params"], server["slots"][part.name])
            for part in self.setting.method.parts
            if part.scalars_down
        )
        return broadcast_bytes(shared, self.setting.experiment.buffers) + own - BYTES_PER_SCALAR * saved

    def send(self, program: Program, server: ServerState, clients: Sequence[int]) -> Sent:
        """Returns what these clients get from the server for local work."""
        sent = broadcast(self.setting.method, server)
        if not (self.setting.method.downloads and clients):
            return Sent(without_replaced(sent, self.form), list(clients), {})
        with torch.no_grad():
            own = make_downloads(program, server, clients, self.kept.of, self.setting.experiment.seed)
        return Sent(without_replaced(sent, own), list(clients), own)

    def for_follow_up(
        self, program: Program, server: ServerState, clients: Sequence[int], settles: bool = False
    ) -> Sent:
        """Returns what these clients get after a merge: the whole shared model, and their own downloads if needed.

        Args:
            settles: they run stages; to be scored they get their own downloads only where predictors read them.
        """
        sent = broadcast(self.setting.method, server)
        if settles or self.setting.method.scored_with_download:
            return self.send(program, server, clients)._replace(shared=sent)
        return Sent(sent, list(clients), {})

    def keep(
        self, program: Program, server: ServerState, clients: Sequence[int], messages: Messages
    ) -> ServerState:
        """Lets parts look at the single uploads of a round and keeps what they say; returns the server's state."""
        if not any(part.keep for part in self.setting.method.parts):
            return server
        with torch.no_grad():
            seed = self.setting.experiment.seed
            server, newest, rows = keep_uploads(program, server, clients, messages, self.kept.of, seed)
        self.kept.write(newest, rows)
        return server

    def save(self) -> dict[str, Any]:
        """Returns what a checkpoint must hold of all this; nothing for a method that keeps nothing."""
        return {"kept": self.kept.save()} if self.setting.method.keeps else {}

    def state(self) -> dict[str, Any]:
        """Returns what the server keeps of all clients themselves, where every checkpoint stands alone: at sites."""
        return {"kept": self.kept.state()} if self.setting.method.keeps else {}

    def saved(self) -> None:
        """Is told that the checkpoint of the last ``save`` is on disk."""
        if self.setting.method.keeps:
            self.kept.store.saved()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from the state of a checkpoint."""
        if "kept" in state:
            self.kept.restore(state["kept"])

    def close(self) -> None:
        self.kept.store.close()


def broadcast_bytes(sent: ServerState, buffers: str = "average") -> int:
    """Returns the bytes of what is sent to every client alike, four for every scalar.

    Running statistics travel only where they are averaged: private ones stay with their client, and frozen ones are
    those of the initial model.
    """
    return BYTES_PER_SCALAR * count_scalars(sent if buffers == "average" else {**sent, "buffers": {}})


def kept_of_finished(
    setting: Setting, folder: Path, population: int, state: Mapping[str, Any]
) -> KeptUploads | None:
    """Opens what the server of a finished run kept of each client, to be read only; None where it kept nothing.

    Args:
        setting: the rows are read to its device.
        state: of the run's last checkpoint.
    """
    if "kept" not in state:
        return None
    first = setting.first_kept
    if "rows" not in state["kept"]:
        kept = KeptUploads.in_memory(first, population)
        kept.restore(state["kept"])
        return kept
    saved, device = state["kept"]["rows"], setting.work.device
    rows = stored_rows(folder, lambda client: first, [first], population, saved, KEPT_ROWS, device)
    kept = KeptUploads(rows, first, population)
    kept.restore(state["kept"])
    return kept
