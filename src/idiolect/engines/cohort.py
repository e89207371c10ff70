"""cohort: all clients as one batched program; parameters stacked, one vmapped step per stage."""

from __future__ import annotations

from dataclasses import dataclass

from idiolect.core import Program, Tree
from idiolect.engines.evaluation import Logits, evaluate_group
from idiolect.engines.group import Outcome, round_of_group, settle_group
from idiolect.engines.packing import BATCHED
from idiolect.engines.workload import Workload

__all__ = ["Cohort"]


@dataclass(frozen=True)
class Cohort:
    """Args:
    chunk: clients computed on at once; the number bounds memory and changes no result.
    """

    work: Workload
    chunk: int = 128

    def round(
        self, program: Program, server: Tree, privates: dict[int, Tree], observe: bool
    ) -> list[Outcome]:
        return [
            outcome
            for part in self._chunks(privates)
            for outcome in round_of_group(program, self.work, BATCHED, server, part, observe)
        ]

    def settle(self, program: Program, phase: str, server: Tree, privates: dict[int, Tree]) -> list[Tree]:
        return [
            private
            for part in self._chunks(privates)
            for private in settle_group(program, self.work, BATCHED, phase, server, part)
        ]

    def evaluate(self, program: Program, server: Tree, privates: dict[int, Tree], split: str) -> list[Logits]:
        return [
            logits
            for part in self._chunks(privates)
            for logits in evaluate_group(program, self.work, BATCHED, server, part, split)
        ]

    def close(self) -> None:
        """Nothing to give back."""

    def _chunks(self, privates: dict[int, Tree]) -> list[dict[int, Tree]]:
        items = list(privates.items())
        return [dict(items[i : i + self.chunk]) for i in range(0, len(items), self.chunk)]
