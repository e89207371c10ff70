"""What the bench knows of a row: one runner in one cell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from idiolect.bench.cell import Cell

__all__ = ["PEERS", "Row", "Turn", "rows_of"]

PEERS = {
    "pfl": ("pfl", "pfl==0.6.0"),
    "pfl-pair": ("pfl", "pfl==0.6.0"),
    "flower": ("flwr", "flwr[simulation]==1.41.0"),
}  # module that must be there, and what to install for it


class Turn(NamedTuple):
    """One timed round, or end of a run."""

    seconds: float
    steps: int


@dataclass
class Row:
    """Args:
    runner: ``plain``, an engine, ``auto`` or a peer.
    threads: that torch may use inside the row's process; the workers of ``pool`` have one each.
    facts: what the row's process says of itself: engine, reason, parameters, version.
    refused: why the row has no times, or why its times may not be compared.
    turns: by phase, the timed ones.
    difference: of the shared model after one round from the plain loop's, relative to how far that one moved.
    sway: the same of the plain loop itself where its start is rounded, if the difference gave reason to ask.
    resident, cuda: peak bytes.
    work: by phase, what was counted of the plain loop.
    """

    cell: Cell
    runner: str
    threads: int
    facts: dict[str, Any] = field(default_factory=dict)
    refused: str = ""
    turns: dict[str, list[Turn]] = field(default_factory=dict)
    difference: float | None = None
    sway: float | None = None
    resident: int | None = None
    cuda: int | None = None
    work: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def is_base(self) -> bool:
        """The plain loop with one thread, which every row of the cell is compared with."""
        return self.runner == "plain" and self.threads == 1

    @property
    def is_engine(self) -> bool:
        return self.runner not in ("plain", "auto", *PEERS)

    def seconds(self, phase: str) -> list[float]:
        return [turn.seconds for turn in self.turns.get(phase, [])]

    def per_step(self, phase: str) -> list[float]:
        """Seconds for one optimisation step of one client, turn by turn."""
        return [turn.seconds / turn.steps for turn in self.turns.get(phase, [])]


def rows_of(cell: Cell, engines: list[str], peers: bool, cores: int) -> list[Row]:
    """The plain loop first, with one thread and with all; then the engines, then the peers where they can do it.

    Peers are timed with FedAvg on clients of equal size in float32, where their steps can be counted against ours.
    """
    comparable = (cell.method, cell.sizes, cell.precision) == ("fedavg", "equal", "float32")
    threads = [1, cores] if cores > 1 and cell.device == "cpu" else [1]
    plain = [Row(cell, "plain", n) for n in threads]
    others = PEERS if peers and comparable else {}
    return plain + [Row(cell, runner, cores) for runner in (*engines, *others)]
