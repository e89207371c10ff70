"""Cells are measured turn by turn: every row makes one round, then every row the next.

Each row lives in a process of its own from the first turn to the last, so that threads, allocators and peak memory
are its own, while whatever slows the machine for a while slows all rows alike.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import cache
from pathlib import Path

from idiolect.bench.agreement import allowed, difference, rounding, verdict
from idiolect.bench.cell import Cell
from idiolect.bench.machine import cores
from idiolect.bench.memory import PeakMemory
from idiolect.bench.process import Failed, Process
from idiolect.bench.row import PEERS, Row, Turn

__all__ = ["measure"]

Say = Callable[[str], None]
SWAYS = 5  # tries
PAUSE = 0.02  # seconds before a turn: threads of the row before that still wait for work go to sleep


def measure(cells: Sequence[list[Row]], repeats: int, warmup: int, say: Say) -> None:
    """Fills in the rows of cells that take their turns together.

    Args:
        warmup: rounds before the timed ones; the first of them is also the one whose model is compared.
    """
    rows = [row for cell in cells for row in cell]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        running: dict[int, Process] = {}
        stack.callback(lambda: [process.hang_up() for process in running.values()])
        for row in rows:
            row.refused = _missing(row)
            if not row.refused:
                asked = {"cell": asdict(row.cell), "runner": row.runner, "threads": row.threads}
                running[id(row)] = stack.enter_context(Process(asked))
        for row in rows:
            say(f"{_title(row)}: preparing")
            _attempt(row, lambda row, process: row.facts.update(process.answer()), running)
        for cell in cells:
            _first_round([row for row in cell if not row.refused], running, Path(folder), say)
        alive = [row for row in rows if not row.refused]
        for turn in range(1, warmup + repeats):
            for row in alive:
                say(f"{_title(row)}: round {turn + 1} of {warmup + repeats}")
                _attempt(row, lambda r, p, timed=turn >= warmup: _turn(r, p, "round", timed), running)
        for turn in range(repeats + 1):
            for row in [row for row in alive if "end" in row.facts.get("phases", ())]:
                say(f"{_title(row)}: end {turn + 1} of {repeats + 1}")
                _attempt(row, lambda r, p, timed=turn > 0: _turn(r, p, "end", timed), running)
        for row in alive:
            say(f"{_title(row)}: memory and work")
            _attempt(row, _look_closer, running)


def _attempt(row: Row, action: Callable[[Row, Process], None], running: dict[int, Process]) -> None:
    if row.refused:
        return
    try:
        action(row, running[id(row)])
    except Failed as reason:
        row.refused = str(reason)


def _first_round(alive: list[Row], running: dict[int, Process], folder: Path, say: Say) -> None:
    """The first warm-up round; the shared models it leads to must be the same."""
    base: dict[str, Path] = {}

    @cache
    def sway() -> float | None:
        say(f"{_title(alive[0])}: how far roundings carry it")
        return _sway(alive[0].cell, base, folder)

    for row in alive:
        say(f"{_title(row)}: first round")
        paths = {moment: folder / f"{id(row)}-{moment}.npz" for moment in ("start", "after")}

        def go(row: Row, process: Process, paths: dict[str, Path] = paths) -> None:
            if row.runner == "flower":
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


def _sway(cell: Cell, base: dict[str, Path], folder: Path) -> float | None:
    """How far the plain loop's model comes out where its start is rounded, at most, in a process of its own.

    None where that process fails: then the row is held against the limit alone.
    """
    off, paths = rounding(cell.precision, cell.device), [folder / f"sway-{seed}.npz" for seed in range(SWAYS)]
    try:
        with Process({"cell": asdict(cell), "runner": "plain", "threads": cores()}) as twin:
            twin.answer()
            for seed, path in enumerate(paths):
                twin.ask({"do": "sway", "rounding": off, "seed": seed, "path": str(path)})
    except Failed:
        return None
    return max(difference(path, base["after"], base["start"]) for path in paths)


def _turn(row: Row, process: Process, phase: str, timed: bool) -> None:
    time.sleep(PAUSE)
    answer = process.ask({"do": "turn", "phase": phase})
    row.cuda = answer.get("cuda")
    if timed:
        row.turns.setdefault(phase, []).append(Turn(answer["seconds"], answer["steps"]))


def _look_closer(row: Row, process: Process) -> None:
    """Peak memory in a round that is not timed; of the plain loop, also what a round consists of."""
    with PeakMemory(process.pid) as memory:
        _turn(row, process, "round", False)
    row.resident = memory.peak
    if row.is_base:
        for phase in row.facts["phases"]:
            row.work[phase] = process.ask({"do": "count", "phase": phase})


def _missing(row: Row) -> str:
    module, package = PEERS.get(row.runner, ("idiolect", ""))
    return "" if importlib.util.find_spec(module) else f"not installed; pip install '{package}'"


def _title(row: Row) -> str:
    cell, threads = row.cell, f" ({row.threads} threads)" if row.runner == "plain" else ""
    sizes = f"{cell.sizes} " if cell.sizes != "equal" else ""
    return f"{cell.workload}, {cell.method}, {cell.clients} {sizes}clients, {cell.precision}, {row.runner}{threads}"
