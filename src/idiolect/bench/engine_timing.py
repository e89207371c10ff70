"""``bench``: times every engine beside the plain loop in each cell of a grid of workloads, methods and sizes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace

from idiolect.bench.interleaved_measurement import BenchRow, Peer, measure, rows_of
from idiolect.bench.machine_peaks import cores, describe_machine
from idiolect.bench.plain_loops import plain_method
from idiolect.bench.report import Report, lines_of
from idiolect.bench.roofline import Peaks
from idiolect.bench.worker_protocol import Failed, WorkerProcess
from idiolect.bench.workloads import ENDLESS, BenchCell
from idiolect.engines import ENGINES, place
from idiolect.errors import UserError, refuse_outside, unknown_name

__all__ = ["BenchGrid", "bench"]


@dataclass(frozen=True)
class BenchGrid:
    """The cells and engines to time; every combination of the tuples is one cell.

    Args:
        workloads: names among ``workloads()``.
        engines: names of engines, or ``auto`` for the one that the library picks.
        clients: cohort sizes; the population is at least as large as the cohort.
        sizes: sizes of the clients: ``equal``, ``lognormal`` or both.
        seed: decides images, cohorts, batches and which client has which size.
        repeats, warmup: timed rounds of every row, and rounds before them.
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

    def __post_init__(self) -> None:
        for engine in self.engines:
            if engine not in ("auto", *ENGINES):
                raise unknown_name("engine", engine, ["auto", *ENGINES])
        for method in self.methods:
            plain_method(method)
        refuse_outside("population", self.population, 1)
        refuse_outside("seed", self.seed, 0, 2**63 - 1)
        for name in ("repeats", "warmup"):
            refuse_outside(name, getattr(self, name), 1, ENDLESS // 4)

    def cells(self) -> list[BenchCell]:
        device = place("auto", self.device).device
        axes = itertools.product(self.workloads, self.methods, self.clients, self.precisions, self.sizes)
        return [
            BenchCell(
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


def bench(
    grid: BenchGrid,
    say: Callable[[str], None] = lambda sentence: None,
    peers_of: Callable[[BenchGrid, BenchCell], Sequence[Peer]] = lambda grid, cell: (),
) -> Report:
    """Measures every cell of the grid; cells that differ only in the sizes of clients take their turns together.

    Peaks are measured before the first cell and after each group of cells, and the best counts, because a busy moment
    makes them look low.

    Args:
        say: receives a sentence about what is under way.
        peers_of: gives the other implementations to time in a cell of the grid.
    """
    cells = grid.cells()
    if not cells or not grid.engines:
        raise UserError(
            "a bench needs at least one workload, engine, method, cohort size, precision and kind of sizes"
        )
    report = Report(describe_machine(cells[0].device))
    measured: list[list[BenchRow]] = []
    with ExitStack() as stack:
        gauges = {p: stack.enter_context(_gauge(cells, p)) for p in dict.fromkeys(grid.precisions)}
        say("peaks of the machine")
        peaks = {precision: Peaks(**gauge.answer()) for precision, gauge in gauges.items()}
        for kin in _together(cells):
            precision = kin[0].precision
            rows = [rows_of(cell, list(grid.engines), peers_of(grid, cell), cores()) for cell in kin]
            measure(rows, grid.repeats, grid.warmup, say)
            measured += rows
            with suppress(Failed):  # the peaks found before remain
                peaks[precision] = peaks[precision].best(Peaks(**gauges[precision].ask({"do": "peaks"})))
    report.peaks.update(peaks)
    for rows_of_cell in measured:
        report.lines += lines_of(rows_of_cell, peaks[rows_of_cell[0].cell.precision])
    report.machine["load_at_end"] = os.getloadavg()[0]
    return report


def _together(cells: list[BenchCell]) -> list[list[BenchCell]]:
    """Groups the cells that differ only in the sizes of clients, which are compared with each other.

    >>> cells = BenchGrid(("w", "dnn"), sizes=("equal", "lognormal")).cells()
    >>> [[f"{cell.workload} {cell.sizes}" for cell in kin] for kin in _together(cells)]
    [['w equal', 'w lognormal'], ['dnn equal', 'dnn lognormal']]
    """
    return [list(kin) for _, kin in itertools.groupby(cells, key=lambda cell: replace(cell, sizes="equal"))]


def _gauge(cells: list[BenchCell], precision: str) -> WorkerProcess:
    """Starts a process that measures the peaks of the machine whenever it is asked."""
    cell = next(cell for cell in cells if cell.precision == precision)
    return WorkerProcess({"cell": asdict(cell), "runner": "peaks", "threads": cores()})
