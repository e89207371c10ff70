"""The engine ``loop``: one client after the other, without padding; the reference for all other engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from idiolect.core import Context, Program, ServerState, Tree
from idiolect.engines.client_packing import SINGLE
from idiolect.engines.contract import Logits, Outcome, StagesDone, nobody
from idiolect.engines.device_data import Workload
from idiolect.engines.evaluation import evaluate_group
from idiolect.engines.stages import round_of_group, settle_group
from idiolect.federation import Store

__all__ = ["LoopEngine"]


@dataclass(frozen=True)
class LoopEngine:
    """Runs clients one after the other in this process.

    Args:
        keep: is given each client and its context after a round, with the results of all its stages.
    """

    work: Workload
    keep: Callable[[int, Context], None] | None = None

    def prepare(self, program: Program, clients: list[int]) -> None:
        """Does nothing: batches are made when a client trains."""

    def round(
        self, program: Program, server: ServerState, privates: Mapping[int, Tree], observe: bool
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for client, private in privates.items():
            keep = partial(self.keep, client) if self.keep else None
            try:
                with self.work.precision.allowed():
                    outcomes += round_of_group(
                        program, self.work, SINGLE, server, {client: private}, observe, keep
                    )
            except Exception as error:
                error.add_note(f"on client {client} in round {program.clock.round}")
                raise
        return outcomes

    def plan_ahead(self, upcoming: Iterator[tuple[Program, list[int]]]) -> None:
        """Does nothing: nothing is planned."""

    def settle(
        self,
        program: Program,
        phase: str,
        server: ServerState,
        privates: Mapping[int, Tree],
        progress: StagesDone = nobody,
    ) -> list[Tree]:
        with self.work.precision.allowed():
            return [
                settle_group(program, self.work, SINGLE, phase, server, {client: private}, progress)[0]
                for client, private in privates.items()
            ]

    def evaluate(
        self, program: Program, server: ServerState, privates: Mapping[int, Tree], split: str
    ) -> list[Logits]:
        with self.work.precision.allowed():
            return [
                evaluate_group(program, self.work, SINGLE, server, {client: private}, split)[0]
                for client, private in privates.items()
            ]

    def residence(self, store: Store) -> Store:
        """Returns the store itself: this engine keeps no rows."""
        return store

    def close(self) -> None:
        """Does nothing: this engine holds no resources."""
