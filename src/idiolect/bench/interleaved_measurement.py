"""Measures the rows of the bench in turns: every row makes one round, then every row makes the next.

Each row has a process of its own from the first turn to the last, so that threads, allocators and peak memory are its
own, while whatever slows the machine for a while slows all rows alike.  A row is compared only if it trained the same
model as the plain loop.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from idiolect.bench.machine_peaks import cores
from idiolect.bench.memory import PeakMemory
from idiolect.bench.worker_protocol import Failed, WorkerProcess
from idiolect.bench.workloads import BenchCell

__all__ = ["BenchRow", "Peer", "Turn", "allowed", "difference", "measure", "rounding", "rows_of", "verdict"]

Say = Callable[[str], None]
SLACK = 1.5  # times the sway, which is the largest of only a few tries
SWAYS = 5  # tries
PAUSE = 0.02  # seconds before a turn, so that idle threads of the previous row go to sleep


class Peer(NamedTuple):
    """Another implementation that is timed beside the engines.

    Args:
        name: what its row is called.
        runner: what its worker is asked to run.
        command: starts its worker, which speaks the protocol of ``worker_protocol``.
        module, requirement: what must be importable, and what to install if it is not.
        saves_model: its worker answers ``save``, so that its model can be compared.
    """

    name: str
    runner: str
    command: tuple[str, ...]
    module: str = "idiolect"
    requirement: str = ""
    saves_model: bool = True


class Turn(NamedTuple):
    """One timed round, or one timed end of a run."""

    seconds: float
    steps: int


@dataclass
class BenchRow:
    """One runner in one cell, and what was measured of it.

    Args:
        runner: ``plain``, an engine, ``auto`` or the name of a peer.
        threads: how many threads torch may use in the row's process; each worker of ``pool`` has one.
        facts: what the row's process says of itself: engine, reason, parameters, version.
        refused: why the row has no times, or why its times may not be compared.
        turns: the timed turns by phase.
        difference: distance of the shared model after one round from the plain loop's, divided by the distance that
            the plain loop's model moved.
        sway: the same for the plain loop itself when its start is perturbed by rounding; None if it was not needed.
        resident, cuda: peak bytes of host and GPU memory.
        work: by phase, what was counted of the plain loop.
    """

    cell: BenchCell
    runner: str
    threads: int
    peer: Peer | None = None
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
        """Whether this is the plain loop with one thread, with which every row of the cell is compared."""
        return self.runner == "plain" and self.threads == 1

    @property
    def is_engine(self) -> bool:
        return self.peer is None and self.runner not in ("plain", "auto")

    def seconds(self, phase: str) -> list[float]:
        return [turn.seconds for turn in self.turns.get(phase, [])]

    def per_step(self, phase: str) -> list[float]:
        """Returns the seconds for one optimisation step of one client, turn by turn."""
        return [turn.seconds / turn.steps for turn in self.turns.get(phase, [])]


def rows_of(cell: BenchCell, engines: list[str], peers: Sequence[Peer], cores: int) -> list[BenchRow]:
    """Returns the rows of a cell: the plain loop with one thread and with all, the engines, the peers."""
    threads = [1, cores] if cores > 1 and cell.device == "cpu" else [1]
    plain = [BenchRow(cell, "plain", n) for n in threads]
    timed = [BenchRow(cell, engine, cores) for engine in engines]
    return plain + timed + [BenchRow(cell, peer.name, cores, peer) for peer in peers]


def difference(after: Path, base: Path, start: Path) -> float:
    """Returns ||after - base|| / ||base - start|| over all tensors of models in npz files."""
    with np.load(after) as one, np.load(base) as other, np.load(start) as first:
        gaps = [_squared(one[name] - other[name]) for name in other.files]
        moves = [_squared(other[name] - first[name]) for name in other.files]
    return float(np.sqrt(sum(gaps) / sum(moves)))


def _squared(array: np.ndarray) -> float:
    return float(np.square(array.astype(np.float64)).sum())


def tolerance(precision: str, device: str) -> float:
    """Returns the tolerance when the model after one round is compared with the plain loop's.

    On a GPU the plain loop itself rounds, because PyTorch convolves in TF32 there by default; a CPU has no TF32.
    Leaving out one step of seven gives a difference of about 0.14.
    """
    if precision == "float64":
        return 1e-9
    if precision == "bf16":
        return 2e-1
    return 1e-3 if device == "cpu" else 1e-1


def rounding(precision: str, device: str) -> float:
    """Returns the relative rounding error of one number of the plain loop, which convolves in TF32 on a GPU."""
    if precision == "float64":
        return 2.0**-52
    return 2.0**-23 if device == "cpu" else 2.0**-11


def allowed(precision: str, device: str, sway: float = 0.0) -> float:
    """Returns the largest difference at which a row is still compared with the plain loop.

    Args:
        sway: the difference that rounding of the start causes in the plain loop itself.
    """
    return max(tolerance(precision, device), SLACK * sway)


def verdict(found: float, limit: float) -> str:
    """Returns an empty string, or the sentence that says why the row is not compared."""
    if found <= limit:
        return ""
    return (
        f"its model after one round differs from the plain loop's by {found:.1e} of the distance that the plain loop's "
        f"moved, more than the {limit:.1e} allowed"
    )


def measure(cells: Sequence[list[BenchRow]], repeats: int, warmup: int, say: Say) -> None:
    """Measures the rows of cells that take their turns together, and writes what it finds into the rows.

    Args:
        warmup: rounds before the timed ones; the model after the first of them is compared.
    """
    rows = [row for cell in cells for row in cell]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        running: dict[int, WorkerProcess] = {}
        stack.callback(_hang_up, running)
        for row in rows:
            row.refused = _missing(row)
            if not row.refused:
                running[id(row)] = stack.enter_context(_start(row))
        for row in rows:
            say(f"{_title(row)}: preparing")
            _attempt(row, lambda row, process: row.facts.update(process.answer()), running)
        for cell in cells:
            _first_round([row for row in cell if not row.refused], running, Path(folder), say)
        alive = [row for row in rows if not row.refused]
        for turn in range(1, warmup + repeats):
            for row in alive:
                say(f"{_title(row)}: round {turn + 1} of {warmup + repeats}")
                _attempt(row, partial(_turn, phase="round", timed=turn >= warmup), running)
        for turn in range(repeats + 1):
            for row in [row for row in alive if "end" in row.facts.get("phases", ())]:
                say(f"{_title(row)}: end {turn + 1} of {repeats + 1}")
                _attempt(row, partial(_turn, phase="end", timed=turn > 0), running)
        for row in alive:
            say(f"{_title(row)}: memory and work")
            _attempt(row, _look_closer, running)


def _hang_up(running: dict[int, WorkerProcess]) -> None:
    for process in running.values():
        process.hang_up()


def _start(row: BenchRow) -> WorkerProcess:
    runner, command = (row.peer.runner, row.peer.command) if row.peer else (row.runner, ())
    return WorkerProcess({"cell": asdict(row.cell), "runner": runner, "threads": row.threads}, command)


def _attempt(
    row: BenchRow, action: Callable[[BenchRow, WorkerProcess], None], running: dict[int, WorkerProcess]
) -> None:
    if row.refused:
        return
    try:
        action(row, running[id(row)])
    except Failed as reason:
        row.refused = str(reason)


def _first_round(alive: list[BenchRow], running: dict[int, WorkerProcess], folder: Path, say: Say) -> None:
    """Makes the first warm-up round and compares the shared models that it leads to."""
    base: dict[str, Path] = {}

    @cache
    def sway() -> float | None:
        say(f"{_title(alive[0])}: effect of rounding on it")
        return _sway(alive[0].cell, base, folder)

    for row in alive:
        say(f"{_title(row)}: first round")
        paths = {moment: folder / f"{id(row)}-{moment}.npz" for moment in ("start", "after")}

        def go(row: BenchRow, process: WorkerProcess, paths: dict[str, Path] = paths) -> None:
            if row.peer and not row.peer.saves_model:
                _turn(row, process, "round", False)
                return
            for moment, path in paths.items():
                if moment == "after":
                    _turn(row, process, "round", False)
                process.ask({"do": "save", "path": str(path)})
            if row.is_base:
                base.update(paths)
            elif base:
                kind = (row.cell.precision, row.cell.device)
                row.difference = difference(paths["after"], base["after"], base["start"])
                if row.difference > allowed(*kind):
                    row.sway = sway()
                row.refused = verdict(row.difference, allowed(*kind, row.sway or 0.0))

        _attempt(row, go, running)


def _sway(cell: BenchCell, base: dict[str, Path], folder: Path) -> float | None:
    """Returns the largest difference that rounding of the start causes in the plain loop, in a process of its own.

    Returns None if that process fails; the row is then compared with the plain tolerance.
    """
    off, paths = rounding(cell.precision, cell.device), [folder / f"sway-{seed}.npz" for seed in range(SWAYS)]
    try:
        with WorkerProcess({"cell": asdict(cell), "runner": "plain", "threads": cores()}) as twin:
            twin.answer()
            for seed, path in enumerate(paths):
                twin.ask({"do": "sway", "rounding": off, "seed": seed, "path": str(path)})
    except Failed:
        return None
    return max(difference(path, base["after"], base["start"]) for path in paths)


def _turn(row: BenchRow, process: WorkerProcess, phase: str, timed: bool) -> None:
    time.sleep(PAUSE)
    answer = process.ask({"do": "turn", "phase": phase})
    row.cuda = answer.get("cuda")
    if timed:
        row.turns.setdefault(phase, []).append(Turn(answer["seconds"], answer["steps"]))


def _look_closer(row: BenchRow, process: WorkerProcess) -> None:
    """Measures peak memory in a round that is not timed, and counts the work of the plain loop."""
    with PeakMemory(process.pid) as memory:
        _turn(row, process, "round", False)
    row.resident = memory.peak
    if row.is_base:
        for phase in row.facts["phases"]:
            row.work[phase] = process.ask({"do": "count", "phase": phase})


def _missing(row: BenchRow) -> str:
    """Returns why a peer cannot run, or an empty string."""
    if row.peer is None or importlib.util.find_spec(row.peer.module):
        return ""
    return f"not installed; pip install '{row.peer.requirement}'"


def _title(row: BenchRow) -> str:
    cell, threads = row.cell, f" ({row.threads} threads)" if row.runner == "plain" else ""
    sizes = f"{cell.sizes} " if cell.sizes != "equal" else ""
    return f"{cell.workload}, {cell.method}, {cell.clients} {sizes}clients, {cell.precision}, {row.runner}{threads}"
