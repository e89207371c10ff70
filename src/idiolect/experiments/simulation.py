"""A run: rounds one after the other, evaluated, recorded, and resumed as if never stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from idiolect.core import Program, Tree, broadcast, server_round
from idiolect.core.trees import any_nan, count_scalars
from idiolect.engines import Engine, PrivateRows
from idiolect.engines.cpu_tuning import threads_for
from idiolect.experiments.examine import examine, examine_joined, examine_outcomes, remarks_of
from idiolect.experiments.merging import broken_rows, gathered, refuse_broken, served
from idiolect.experiments.newcomers import join
from idiolect.experiments.recorder import Recorder
from idiolect.experiments.setting import Setting
from idiolect.experiments.traffic import bytes_down, bytes_up
from idiolect.federation import ByClient, Members, Store
from idiolect.records import RoundBuffer, RowBuffer

__all__ = ["Simulation"]

CHUNK = 256  # clients at most that are looked at together when all are; changes no number


@dataclass
class Simulation:
    """The state of a run between rounds.

    Args:
        round: rounds completed.
        latest: current numbers, for a progress bar.
        picks: what was chosen on validation data, and by the oracle, at the last evaluation.
        ended: the stages of the end of the run are done.

    Attributes:
        selected: clients that have taken part.
    """

    setting: Setting
    engine: Engine
    server: Tree
    store: PrivateRows
    rows: RowBuffer = field(default_factory=RowBuffer)
    rounds: RoundBuffer = field(default_factory=RoundBuffer)
    round: int = 0
    latest: dict[str, float] = field(default_factory=dict)
    picks: dict[str, str] = field(default_factory=dict)
    ended: bool = False

    def __post_init__(self) -> None:
        self.selected = Members(self.setting.federation.population)

    @classmethod
    def start(cls, setting: Setting, engine: Engine, store: Store | None = None) -> Simulation:
        """A run before its first round; without a store, private state is kept in memory and cannot be saved."""
        if store is None:
            population, device = setting.federation.population, setting.work.device
            store = Store.in_memory(setting.first_private, population, setting.private_shapes, device)
        return cls(setting, engine, setting.first_server(), engine.residence(store))

    def advance(self) -> None:
        """One round: select, train, merge, let every client score, evaluate."""
        began = time.perf_counter()
        setting = self.setting
        program = setting.program(self.round)
        cohort = self.setting.cohort(self.round)
        evaluated = setting.experiment.evaluates(self.round + 1)
        observed = evaluated or setting.experiment.observe == "always"
        sent = broadcast(setting.method, self.server)
        privates = self.store.together(cohort)
        if (coming := next(self._upcoming(), None)) is not None:
            self.store.prefetch(coming[1])
            self.engine.prepare(*coming)
        outcomes = self.engine.round(program, sent, privates, observed)
        del privates
        with threads_for(len(cohort) * count_scalars(sent)):
            messages, losses, kept = gathered(outcomes)
            broken = broken_rows(messages, losses, kept)
            merged = server_round(setting.method, self.server, messages, program.clock)
        down = self._down(program, sent, len(cohort))
        up = bytes_up(setting.method, messages, len(cohort))
        self.engine.plan_ahead(self._upcoming())
        # Only now, after all that a device can do meanwhile, is it looked at.
        refuse_broken(cohort, broken, f"in round {self.round + 1}")
        self.server = served(setting, program, merged, messages)
        self.store.write(ByClient(cohort, kept))
        self._settle("merged", program)
        self.round += 1
        self.selected.add(cohort)
        loss = float(losses.mean())
        seconds = time.perf_counter() - began
        self.rounds.add(self.round, seconds, len(cohort), down, up, loss)
        self.latest["loss"] = loss
        if observed:
            self._recorder().cohort(cohort, examine_outcomes(setting, cohort, outcomes))
        if evaluated:
            del outcomes, messages, kept
            self._look(program, "before")
            if self.round < setting.experiment.rounds:
                self.store.prefetch(setting.cohort(self.round))

    def finish(self) -> None:
        """The stages of the end of the run, on every client, and what they lead to; once."""
        if self.ended:
            return
        self.ended = True
        program = self.setting.program(self.round)
        if self._settle("end", program):
            self._look(program, "end")
        self.store.gather()
        if any(part.remarks for part in self.setting.method.parts):
            for clients, privates in self._everyone():
                for client in clients:
                    found = remarks_of(self.setting, program, self.server, client, privates[client])
                    self._recorder().remarks(client, found)
        if self.setting.federation.newcomers:
            joined = join(self.setting, self.engine, self.server, self.round)
            arrival = examine_joined(self.setting, joined)
            self.picks |= self._recorder().newcomers(arrival)

    def _recorder(self) -> Recorder:
        return Recorder(self.setting, self.rows, self.round, self.server)

    def _look(self, program: Program, moment: str) -> None:
        """Evaluates all clients and the shared model."""
        chunks = (privates for _, privates in self._everyone())
        examined = examine(self.setting, self.engine, program, self.server, chunks)
        seen = self._recorder().everyone(program, examined, moment)
        self.latest |= seen.numbers
        self.picks = seen.picks

    def _settle(self, phase: str, program: Program) -> bool:
        plan = program.method.plan(program.scene, program.clock)
        if not (plan.merged if phase == "merged" else plan.end):
            return False
        sent = broadcast(self.setting.method, self.server)
        for clients, privates in self._everyone():
            settled = self.engine.settle(program, phase, sent, privates)
            refuse_broken(clients, any_nan(settled), f"after round {self.round}")
            self.store.write(ByClient(clients, settled))
        return True

    def _everyone(self) -> Iterator[tuple[list[int], Mapping[int, Tree]]]:
        """All clients with their private state, some at a time, those after them being read meanwhile."""
        population = self.setting.federation.population
        size = self.store.at_once(CHUNK, least=len(self.setting.cohort(0)))
        for first in range(0, population, size):
            chunk = range(first, min(first + size, population))
            privates = self.store.together(chunk)
            self.store.prefetch(range(first + size, min(first + 2 * size, population)))
            yield list(chunk), privates
            del privates

    def _upcoming(self) -> Iterator[tuple[Program, list[int]]]:
        """The rounds after this one, each with its clients, made when they are asked for."""
        for round in range(self.round + 1, self.setting.experiment.rounds):
            yield self.setting.program(round), self.setting.cohort(round)

    def _down(self, program: Program, sent: Tree, cohort_size: int) -> int:
        plan = program.method.plan(program.scene, program.clock)
        population, policy = self.setting.federation.population, self.setting.experiment.buffers
        return bytes_down(sent, plan, self.round, cohort_size, population, policy)

    def state(self) -> dict[str, Any]:
        """All that the next round depends on but private state; randomness is derived from its number."""
        picks = {name: torch.tensor(list(member.encode())) for name, member in self.picks.items()}
        return {
            "server": self.server,
            "selected": torch.from_numpy(self.selected.bits()),
            "picks": picks,
            "ended": torch.tensor(self.ended),
        }

    def restore(self, round: int, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint, whose tables stay where they are; ``rows`` and ``rounds`` collect what follows.

        Tensors are copied: rounding depends on how memory is aligned.
        """
        population = self.setting.federation.population
        self.round, self.server = round, self.setting.work.copied(state["server"])
        self.store.restore(state["private"])
        self.selected = Members.from_bits(population, state["selected"].numpy())
        self.picks = {name: bytes(letters.tolist()).decode() for name, letters in state["picks"].items()}
        self.ended = bool(state["ended"])
