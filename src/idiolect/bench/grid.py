"""The grid of workloads, methods, cohorts, precisions and sizes: every engine beside the plain loop in each cell."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace

from idiolect.bench.cell import Cell
from idiolect.bench.floor import Peaks
from idiolect.bench.machine import cores, describe_machine
from idiolect.bench.methods import entry_of
from idiolect.bench.process import Failed, Process
from idiolect.bench.report import Report, lines_of
from idiolect.bench.row import Row, rows_of
from idiolect.bench.setting import ENDLESS
from idiolect.bench.turns import measure
from idiolect.engines import ENGINES, place
from idiolect.errors import UserError, refuse_outside, unknown_name

__all__ = ["Grid", "bench"]


@dataclass(frozen=True)
class Grid:
    """Args:
    workloads: names among ``workloads()``.
    engines: names of engines, or ``auto``: whichever the library picks.
    clients: cohort sizes; a population grows to the largest cohort asked of it.
    sizes: of the clients, ``equal``, ``lognormal`` or both.
    seed: of images, cohorts and batches, and of who has which size.
    repeats, warmup: timed rounds of every row, and rounds before them.
    peers: times pfl-research and Flower's simulation as well, where they are installed.
    """

    workloads: tuple[str, ...] = ("w", "lenet", "dnn")
    engines: tuple[str, ...] = ("loop", "cohort", "pool", "auto")
    clients: tuple[int, ...] = (20,)
    precisions: tuple[str, ...] = ("float32",)
    methods: tuple[str, ...] = ("fedavg",)
    device: str = "auto"
    population: int = 100
    samples: int = 400
    batch_size: int = 64
    sizes: tuple[str, ...] = ("equal",)
    seed: int = 0
    repeats: int = 5
    warmup: int = 1
    peers: bool = False

    def __post_init__(self) -> None:
        for engine in self.engines:
            if engine not in ("auto", *ENGINES):
                raise unknown_name("engine", engine, ["auto", *ENGINES])
        for method in self.methods:
            entry_of(method)
        refuse_outside("population", self.population, 1)
        refuse_outside("seed", self.seed, 0, 2**63 - 1)
        for name in ("repeats", "warmup"):
            refuse_outside(name, getattr(self, name), 1, ENDLESS // 4)

    def cells(self) -> list[Cell]:
        device = place("auto", self.device).device
        axes = itertools.product(self.workloads, self.methods, self.clients, self.precisions, self.sizes)
        return [
            Cell(
                workload=workload,
                method=method,
                clients=clients,
                population=max(self.population, clients),
                samples=self.samples,
                batch_size=self.batch_size,
                sizes=sizes,
                seed=self.seed,
                precision=precision,
                device=device,
            )
            for workload, method, clients, precision, sizes in axes
        ]


def bench(grid: Grid, say: Callable[[str], None] = lambda sentence: None) -> Report:
    """Measures every cell of the grid; those that differ in sizes alone take their turns together.

    Peaks are looked for before the first cell and after each group of them: the best of all counts, since a busy moment
    makes them look low.

    Args:
        say: is told what is under way.
    """
    cells = grid.cells()
    if not cells or not grid.engines:
        raise UserError(
            "a bench needs at least one workload, engine, method, cohort size, precision and kind of sizes"
        )
    report = Report(describe_machine(cells[0].device))
    measured: list[list[Row]] = []
    with ExitStack() as stack:
        gauges = {p: stack.enter_context(_gauge(cells, p)) for p in dict.fromkeys(grid.precisions)}
        say("peaks of the machine")
        peaks = {precision: Peaks(**gauge.answer()) for precision, gauge in gauges.items()}
        for kin in _together(cells):
            precision = kin[0].precision
            rows = [rows_of(cell, list(grid.engines), grid.peers, cores()) for cell in kin]
            measure(rows, grid.repeats, grid.warmup, say)
            measured += rows
            with suppress(Failed):  # the peaks found before still stand
                peaks[precision] = peaks[precision].best(Peaks(**gauges[precision].ask({"do": "peaks"})))
    report.peaks.update(peaks)
    for rows in measured:
        report.lines += lines_of(rows, peaks[rows[0].cell.precision])
    report.machine["load_at_end"] = os.getloadavg()[0]
    return report


def _together(cells: list[Cell]) -> list[list[Cell]]:
    """Those that differ in sizes alone, which are compared with each other.

    >>> cells = Grid(("w", "dnn"), sizes=("equal", "lognormal")).cells()
    >>> [[f"{cell.workload} {cell.sizes}" for cell in kin] for kin in _together(cells)]
    [['w equal', 'w lognormal'], ['dnn equal', 'dnn lognormal']]
    """
    return [list(kin) for _, kin in itertools.groupby(cells, key=lambda cell: replace(cell, sizes="equal"))]


def _gauge(cells: list[Cell], precision: str) -> Process:
    """A process that measures the peaks of the machine whenever it is asked."""
    cell = next(cell for cell in cells if cell.precision == precision)
    return Process({"cell": asdict(cell), "runner": "peaks", "threads": cores()})
