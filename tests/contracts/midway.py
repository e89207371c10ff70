"""A run stopped before its last round, so that every slot has a history; and all that an engine can be asked then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor

from idiolect.core import Program, Tree, broadcast
from idiolect.engines import Engine
from idiolect.experiments.setting import Setting
from idiolect.experiments.simulated_clients import Simulation

from .sameness import copied, digest, privates
from .tiny import make_engine, setting_of

__all__ = ["Midway", "answers", "midway"]


@dataclass(frozen=True)
class Midway:
    """The state before round ``round`` (counted from 0).  Every client takes part, the smallest and the largest."""

    setting: Setting
    sent: Tree
    privates: dict[int, Tree]
    round: int

    @property
    def program(self) -> Program:
        return self.setting.program(self.round)

    @property
    def unseen(self) -> Tree:
        """A shared model that no client has scored: of two equal ones, rounding would decide which is better."""
        return {**self.sent, "params": {name: 0.9 * p for name, p in self.sent["params"].items()}}

    def among(self, clients: Iterable[int]) -> Midway:
        return replace(self, privates={client: self.privates[client] for client in clients})

    def ask(self, engine: Engine, observe: bool = True) -> dict[str, dict[int, Any]]:
        """A round, the phases the method has, and logits, for every client in the order of their numbers."""
        program, plan = self.program, self.setting.method.plan(self.program.scene, self.program.clock)
        found: dict[str, list[Any]] = {"round": engine.round(program, self.sent, self.privates, observe)}
        for phase in ("merged", "end"):
            if getattr(plan, phase):
                found[phase] = engine.settle(program, phase, self.unseen, self.privates)
        if observe:
            found["valid"] = engine.evaluate(program, self.sent, self.privates, "valid")
        return {call: dict(sorted(zip(self.privates, got, strict=True))) for call, got in found.items()}

    def digest(self) -> str:
        return digest({"sent": self.sent, "privates": self.privates})

    def inputs(self) -> dict[tuple[str, ...], Tensor]:
        """A copy of all that an engine is given."""
        work = self.setting.work
        facts = {client: work.facts(client) for client in self.privates}
        return copied([self.sent, self.privates, facts, work.x, work.y])


class Answers(NamedTuple):
    found: dict[str, dict[int, Any]]
    inputs_before: dict[tuple[str, ...], Tensor]
    inputs_after: dict[tuple[str, ...], Tensor]


@lru_cache(maxsize=4)
def midway(method: str, rounds_done: int = 2, **settings: Any) -> Midway:
    """Shared by tests, which must leave it as it is."""
    setting = setting_of(method, **settings)
    simulation = Simulation.start(setting, make_engine("loop", setting))
    for _ in range(rounds_done):
        simulation.advance()
    return Midway(setting, broadcast(setting.method, simulation.server), privates(simulation), rounds_done)


@lru_cache(maxsize=8)
def answers(method: str, engine: str, backwards: bool = False) -> Answers:
    """What an engine makes of the midway state, asked about the clients in order or backwards."""
    at = midway(method)
    asked = at.among(reversed(at.privates)) if backwards else at
    worker = make_engine(engine, at.setting)
    before = at.inputs()
    try:
        found = asked.ask(worker)
    finally:
        worker.close()
    return Answers(found, before, at.inputs())
