"""A run stopped before its last round, so that every slot has a history; and all that an engine can be asked then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from idiolect.core import Batch, Flat, Program, ServerState, Stage
from idiolect.engines import Engine, Workload
from idiolect.engines.client_packing import BATCHED, Feed
from idiolect.engines.cohort.batches import padded_feed
from idiolect.engines.stages import round_of_group, settle_group
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting
from idiolect.testing.sameness import copied, digest, privates

__all__ = ["Midway", "noisy_feed"]


@dataclass(frozen=True)
class Midway:
    """The state before round ``round`` (counted from 0).  Every client takes part, the smallest and the largest."""

    setting: Setting
    sent: ServerState
    privates: dict[int, Any]
    round: int

    @classmethod
    def of(cls, simulation: Simulation) -> Midway:
        """Returns a run as it is now, with what the server would send each client alone."""
        setting, round = simulation.setting, simulation.round
        everyone = privates(simulation)
        downloads = simulation.participants.downloads
        sent = downloads.for_follow_up(
            setting.program(round), simulation.server, list(everyone), settles=True
        )
        return cls(setting, sent.shared, dict(sent.with_own(everyone)), round)

    @property
    def program(self) -> Program:
        return self.setting.program(self.round)

    @property
    def unseen(self) -> ServerState:
        """A shared model that no client has scored: of two equal ones, rounding would decide which is better."""
        smaller: Flat = {name: 0.9 * p for name, p in self.sent["params"].items()}
        return {**self.sent, "params": smaller}

    def among(self, clients: Iterable[int]) -> Midway:
        return replace(self, privates={client: self.privates[client] for client in clients})

    def ask(self, engine: Engine, observe: bool = True) -> dict[str, dict[int, Any]]:
        """Returns a round, the phases the method has, and logits, for every client in the order of their numbers."""
        program = self.program
        found: dict[str, Any] = {"round": engine.round(program, self.sent, self.privates, observe)}
        for phase in self._phases():
            found[phase] = engine.settle(program, phase, self.unseen, self.privates)
        if observe:
            found["valid"] = engine.evaluate(program, self.sent, self.privates, "valid")
        return self._by_client(found)

    def ask_padded(self) -> dict[str, dict[int, Any]]:
        """Returns what ``ask`` does without observing, from a cohort that is padded with noise."""
        program, work, packing = self.program, self.setting.work, BATCHED._replace(feed=noisy_feed)
        found: dict[str, Any] = {
            "round": round_of_group(program, work, packing, self.sent, self.privates, observe=False)
        }
        for phase in self._phases():
            found[phase] = settle_group(program, work, packing, phase, self.unseen, self.privates)
        return self._by_client(found)

    def digest(self) -> str:
        return digest({"sent": self.sent, "privates": self.privates})

    def inputs(self) -> dict[tuple[str, ...], Tensor]:
        """Returns a copy of all that an engine is given."""
        work = self.setting.work
        facts = {client: work.facts(client) for client in self.privates}
        given = {"sent": self.sent, "private": self.privates, "facts": facts, "x": work.x, "y": work.y}
        return copied(given)

    def _phases(self) -> list[str]:
        plan = self.setting.method.plan(self.program.scene, self.program.clock)
        return [phase for phase in ("merged", "end") if getattr(plan, phase)]

    def _by_client(self, found: dict[str, Any]) -> dict[str, dict[int, Any]]:
        return {call: dict(sorted(zip(self.privates, got, strict=True))) for call, got in found.items()}


def noisy_feed(work: Workload, program: Program, stage: Stage, clients: list[int]) -> Feed:
    """Yields more padding than a cohort needs, full of noise: three rows a batch, and steps in between."""
    for batches, active in padded_feed(work, program, stage, clients):
        noisy = tuple(_with_noise(batch, work.federation.n_classes) for batch in batches)
        nothing = tuple(batch._replace(mask=torch.zeros_like(batch.mask)) for batch in noisy)
        nobody = torch.zeros(len(clients), dtype=torch.bool)
        yield from ((nothing, nobody), (noisy, active), (nothing, nobody))


def _with_noise(batch: Batch, n_classes: int, rows: int = 3) -> Batch:
    random = torch.Generator().manual_seed(0)
    more = [batch.x.shape[0], rows]
    x = 10 * torch.randn(*more, *batch.x.shape[2:], generator=random, dtype=batch.x.dtype)
    y = torch.randint(n_classes, [*more, *batch.y.shape[2:]], generator=random).to(batch.y.dtype)
    key = torch.randint(2**60, more, generator=random)
    no_row = x.new_zeros(more)
    pairs = ((batch.x, x), (batch.y, y), (batch.mask, no_row), (batch.key, key))
    joined_x, joined_y, mask, keys = (torch.cat(pair, 1) for pair in pairs)
    return Batch(joined_x, joined_y, mask, keys, batch.draws)
