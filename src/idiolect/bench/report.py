"""What a bench reports: one plain dictionary per row and phase, and the table made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from idiolect.bench.floor import Peaks, floor_of
from idiolect.bench.row import Row
from idiolect.bench.spread import paired_ratio, spread_of

__all__ = ["Report", "lines_of"]

SCHEMA = 1


@dataclass
class Report:
    """Args:
    machine: what it is; cores, versions, load before and after.
    peaks: by precision, operations and bytes per second.
    lines: one for each row and phase.
    """

    machine: dict[str, Any]
    peaks: dict[str, Peaks] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        peaks = {precision: found._asdict() for precision, found in self.peaks.items()}
        return {"schema": SCHEMA, "machine": self.machine, "peaks": peaks, "rows": self.lines}


def lines_of(rows: list[Row], peaks: Peaks) -> list[dict[str, Any]]:
    """The rows of one cell, each phase compared with the plain loop of one thread."""
    base = next(row for row in rows if row.is_base)
    found = []
    for phase in base.facts.get("phases", ["round"]):
        for row in rows:
            if phase == "round" or phase in row.facts.get("phases", ()) or row.refused:
                found.append(_line(row, phase, base, peaks, _best(rows, phase)))
    return found


def _best(rows: list[Row], phase: str) -> Row | None:
    """The fastest engine of the cell."""
    timed = [row for row in rows if row.is_engine and row.turns.get(phase) and not row.refused]
    return min(timed, key=lambda row: spread_of(row.per_step(phase)).median, default=None)


def _line(row: Row, phase: str, base: Row, peaks: Peaks, best: Row | None) -> dict[str, Any]:
    line: dict[str, Any] = {
        **row.cell.as_dict(),
        "phase": phase,
        "runner": row.runner,
        "threads": row.threads,
        **{fact: row.facts.get(fact) for fact in ("engine", "reason", "version", "parameters")},
        "refused": row.refused or _miscounted(row, phase, base) or None,
        "difference": row.difference,
        "sway": row.sway,
        "peak_resident_bytes": row.resident,
        "peak_cuda_bytes": row.cuda,
    }
    return {**line, **_times(row, phase), **_comparisons(row, phase, base, peaks, best, line["refused"])}


def _miscounted(row: Row, phase: str, base: Row) -> str:
    """Every row must make the plain loop's steps, which were also counted."""
    ours, theirs = ([turn.steps for turn in r.turns.get(phase, [])] for r in (row, base))
    if row.turns.get(phase) and base.turns.get(phase) and ours != theirs:
        return f"made {ours[0]} optimisation steps a round where the plain loop made {theirs[0]}"
    return ""


def _times(row: Row, phase: str) -> dict[str, Any]:
    if not row.turns.get(phase):
        return dict.fromkeys(("seconds", "steps", "client_steps_per_second", "seconds_per_client_step"))
    per_step = spread_of(row.per_step(phase))
    return {
        "seconds": {**spread_of(row.seconds(phase))._asdict(), "all": row.seconds(phase)},
        "steps": [turn.steps for turn in row.turns[phase]],
        "client_steps_per_second": 1 / per_step.median,
        "seconds_per_client_step": per_step._asdict(),
    }


def _comparisons(
    row: Row, phase: str, base: Row, peaks: Peaks, best: Row | None, refused: str | None
) -> dict[str, Any]:
    names = ("times_plain", "times_best_engine", "flops", "bytes", "share_of_arithmetic", "share_of_memory")
    found: dict[str, Any] = dict.fromkeys(names)
    if refused or not row.turns.get(phase):
        return found
    if base.turns.get(phase) and not base.refused:
        found["times_plain"] = paired_ratio(base.per_step(phase), row.per_step(phase))._asdict()
    if row.runner == "auto" and best is not None:
        found["times_best_engine"] = paired_ratio(best.per_step(phase), row.per_step(phase))._asdict()
    work = base.work.get(phase)
    if work:
        found |= {"flops": work["flops"], "bytes": work["bytes"]}
        floor = floor_of(work["flops"] / work["steps"], work["bytes"] / work["steps"], peaks)
        shares = floor.shares(spread_of(row.per_step(phase)).median)
        found |= dict(zip(("share_of_arithmetic", "share_of_memory"), shares, strict=True))
    return found
