"""What a round of each method costs beside a round of FedAvg: both take their turns in one process, on one engine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from idiolect.bench.machine_peaks import synchronise
from idiolect.bench.report import Spread, paired_ratio
from idiolect.bench.worker import EngineRunner
from idiolect.bench.workloads import BenchCell, bench_setting
from idiolect.engines import place
from idiolect.errors import UserError, refuse_outside
from idiolect.methods import method as read_method

__all__ = ["CostGrid", "RoundCost", "round_costs"]

WARMUP = 2  # rounds before the timed ones: a server that remembers clients has heard from some by then


@dataclass(frozen=True)
class CostGrid:
    """How rounds are timed; the defaults are the network of the demo scene and small clients.

    Args:
        repeats: timed rounds of a method, each beside one of FedAvg.
    """

    cell: BenchCell = field(
        default_factory=lambda: BenchCell("lenet", clients=10, population=40, samples=200)
    )
    engine: str = "loop"
    repeats: int = 5

    def __post_init__(self) -> None:
        refuse_outside("repeats", self.repeats, 1)

    def as_dict(self) -> dict[str, Any]:
        """Returns the work of a round, without the method."""
        cell = {key: value for key, value in self.cell.as_dict().items() if key != "method"}
        return {**cell, "engine": self.engine, "repeats": self.repeats, "warmup": WARMUP}


@dataclass(frozen=True)
class RoundCost:
    """Seconds of the method's round over those of FedAvg's, turn by turn.

    Args:
        refused: why there is none.
    """

    method: str
    ratio: Spread | None = None
    refused: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio and self.ratio._asdict()}


def round_costs(
    methods: Sequence[str], grid: CostGrid, say: Callable[[str], None] = lambda sentence: None
) -> Iterator[RoundCost]:
    """Times the rounds of each method beside rounds of FedAvg that see the same images.

    Local work, both ways of traffic and the server's own work are timed; scoring and the end of the run are not.
    """
    for text in methods:
        read_method(text)
    for text in methods:
        say(text)
        try:
            yield RoundCost(text, _ratio(text, grid))
        except UserError as error:
            yield RoundCost(text, refused=str(error))
        gc.collect()


def _ratio(text: str, grid: CostGrid) -> Spread:
    where = place(grid.engine, grid.cell.device)
    pair = [
        EngineRunner(bench_setting(replace(grid.cell, method=one), one, where), where)
        for one in ("fedavg", text)
    ]
    try:
        seconds = [[_seconds(one, grid.cell.device) for one in pair] for _ in range(WARMUP + grid.repeats)]
    finally:
        for one in pair:
            one.close()
    base, other = zip(*seconds[WARMUP:], strict=True)
    return paired_ratio(other, base)


def _seconds(one: EngineRunner, device: str) -> float:
    synchronise(device)
    began = time.perf_counter()
    one.go("round")
    synchronise(device)
    return time.perf_counter() - began
