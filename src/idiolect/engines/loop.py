"""loop: one client at a time, nothing padded; the reference, and the debugger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from idiolect.core import PrivateState, Program, ServerState
from idiolect.engines.evaluation import Logits, evaluate_group
from idiolect.engines.group import Outcome, round_of_group, settle_group
from idiolect.engines.packing import SINGLE
from idiolect.engines.workload import Workload

__all__ = ["Loop"]


@dataclass(frozen=True)
class Loop:
    work: Workload

    def round(
        self, program: Program, server: ServerState, privates: Mapping[int, PrivateState], observe: bool
    ) -> list[Outcome]:
        outcomes = []
        for client, private in privates.items():
            try:
                with self.work.precision.allowed():
                    outcomes += round_of_group(program, self.work, SINGLE, server, {client: private}, observe)
            except Exception as error:
                error.add_note(f"on client {client} in round {program.clock.round}")
                raise
        return outcomes

    def settle(
        self, program: Program, phase: str, server: ServerState, privates: Mapping[int, PrivateState]
    ) -> list[PrivateState]:
        with self.work.precision.allowed():
            return [
                settle_group(program, self.work, SINGLE, phase, server, {client: private})[0]
                for client, private in privates.items()
            ]

    def evaluate(
        self, program: Program, server: ServerState, privates: Mapping[int, PrivateState], split: str
    ) -> list[Logits]:
        with self.work.precision.allowed():
            return [
                evaluate_group(program, self.work, SINGLE, server, {client: private}, split)[0]
                for client, private in privates.items()
            ]

    def close(self) -> None:
        """Nothing to give back."""
