"""An engine that keeps what passes through it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from idiolect.core import Program, Tree
from idiolect.engines import Engine, Outcome, PrivateRows
from idiolect.federation import Store

__all__ = ["Passed", "Recorder"]


class Passed(NamedTuple):
    """One round as the engine saw it."""

    sent: Tree
    privates: dict[int, Tree]
    outcomes: dict[int, Outcome]


@dataclass
class Recorder:
    engine: Engine
    rounds: list[Passed] = field(default_factory=list)

    def prepare(self, program: Program, clients: list[int]) -> None:
        self.engine.prepare(program, clients)

    def round(
        self, program: Program, server: Tree, privates: dict[int, Tree], observe: bool
    ) -> list[Outcome]:
        outcomes = self.engine.round(program, server, privates, observe)
        self.rounds.append(Passed(server, dict(privates), dict(zip(privates, outcomes, strict=True))))
        return outcomes

    def plan_ahead(self, upcoming: Iterator[tuple[Program, list[int]]]) -> None:
        self.engine.plan_ahead(upcoming)

    def settle(self, program: Program, phase: str, server: Tree, privates: dict[int, Tree]) -> list[Tree]:
        return self.engine.settle(program, phase, server, privates)

    def evaluate(self, program: Program, server: Tree, privates: dict[int, Tree], split: str) -> list[Any]:
        return self.engine.evaluate(program, server, privates, split)

    def residence(self, store: Store) -> PrivateRows:
        return self.engine.residence(store)

    def close(self) -> None:
        self.engine.close()
