"""An engine that keeps what passes through it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from idiolect.core import Program, ServerState, Tree
from idiolect.engines import Engine, Outcome, PrivateRows
from idiolect.engines.contract import Logits, StagesDone, nobody
from idiolect.federation import Store

__all__ = ["Passed", "Recorder"]


class Passed(NamedTuple):
    """One round as the engine saw it."""

    sent: ServerState
    privates: dict[int, Any]
    outcomes: dict[int, Outcome]


@dataclass
class Recorder:
    """Passes every call on to ``engine`` and keeps the rounds in ``rounds``."""

    engine: Engine
    rounds: list[Passed] = field(default_factory=list)

    def prepare(self, program: Program, clients: list[int]) -> None:
        self.engine.prepare(program, clients)

    def round(
        self, program: Program, server: ServerState, privates: Mapping[int, Tree], observe: bool
    ) -> Sequence[Outcome]:
        outcomes = self.engine.round(program, server, privates, observe)
        self.rounds.append(Passed(server, dict(privates), dict(zip(privates, outcomes, strict=True))))
        return outcomes

    def plan_ahead(self, upcoming: Iterator[tuple[Program, list[int]]]) -> None:
        self.engine.plan_ahead(upcoming)

    def settle(
        self,
        program: Program,
        phase: str,
        server: ServerState,
        privates: Mapping[int, Tree],
        progress: StagesDone = nobody,
    ) -> Sequence[Tree]:
        return self.engine.settle(program, phase, server, privates, progress)

    def evaluate(
        self, program: Program, server: ServerState, privates: Mapping[int, Tree], split: str
    ) -> Sequence[Logits]:
        return self.engine.evaluate(program, server, privates, split)

    def residence(self, store: Store) -> PrivateRows:
        return self.engine.residence(store)

    def close(self) -> None:
        self.engine.close()
