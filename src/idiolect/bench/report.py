"""The report of a bench: one dictionary per row and phase, and the table and notes made of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from idiolect.bench.interleaved_measurement import BenchRow
from idiolect.bench.roofline import Peaks, floor_of

__all__ = ["Report", "Spread", "lines_of", "notes_of", "paired_ratio", "rows_of_table", "spread_of"]


SCHEMA = 1
BUSY = 0.25  # load per core above which the machine counts as busy


class Spread(NamedTuple):
    """The median, the least and the greatest of several repeats."""

    median: float
    low: float
    high: float


def spread_of(repeats: Sequence[float]) -> Spread:
    """Returns the median and the range of repeats.

    >>> spread_of([3.0, 1.0, 2.0, 10.0])
    Spread(median=2.5, low=1.0, high=10.0)
    """
    return Spread(statistics.median(repeats), min(repeats), max(repeats))


def paired_ratio(base: Sequence[float], other: Sequence[float]) -> Spread:
    """Returns base / other turn by turn; what slows a whole turn cancels out.

    >>> paired_ratio([2.0, 4.0, 2.0], [1.0, 2.0, 4.0])
    Spread(median=2.0, low=0.5, high=2.0)
    """
    return spread_of([a / b for a, b in zip(base, other, strict=True)])


@dataclass
class Report:
    """What a bench found.

    Args:
        machine: description of the machine: cores, versions, load before and after.
        peaks: operations and bytes per second, by precision.
        lines: one dictionary for each row and phase.
    """

    machine: dict[str, Any]
    peaks: dict[str, Peaks] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        peaks = {precision: found._asdict() for precision, found in self.peaks.items()}
        return {"schema": SCHEMA, "machine": self.machine, "peaks": peaks, "rows": self.lines}


def lines_of(rows: list[BenchRow], peaks: Peaks) -> list[dict[str, Any]]:
    """Returns the lines of one cell, each phase compared with the plain loop of one thread."""
    base = next(row for row in rows if row.is_base)
    found = []
    for phase in base.facts.get("phases", ["round"]):
        for row in rows:
            if phase == "round" or phase in row.facts.get("phases", ()) or row.refused:
                found.append(_line(row, phase, base, peaks, _best(rows, phase)))
    return found


def _best(rows: list[BenchRow], phase: str) -> BenchRow | None:
    """Returns the fastest engine of the cell."""
    timed = [row for row in rows if row.is_engine and row.turns.get(phase) and not row.refused]
    return min(timed, key=lambda row: spread_of(row.per_step(phase)).median, default=None)


def _line(row: BenchRow, phase: str, base: BenchRow, peaks: Peaks, best: BenchRow | None) -> dict[str, Any]:
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


def _miscounted(row: BenchRow, phase: str, base: BenchRow) -> str:
    """Returns a sentence if the row made another number of steps than the plain loop, or an empty string."""
    ours, theirs = ([turn.steps for turn in r.turns.get(phase, [])] for r in (row, base))
    if row.turns.get(phase) and base.turns.get(phase) and ours != theirs:
        return f"made {ours[0]} optimisation steps a round where the plain loop made {theirs[0]}"
    return ""


def _times(row: BenchRow, phase: str) -> dict[str, Any]:
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
    row: BenchRow, phase: str, base: BenchRow, peaks: Peaks, best: BenchRow | None, refused: str | None
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


HEAD = [
    "Workload",
    "Clients",
    "Runs on",
    "s/round",
    "min-max",
    "Client-steps/s",
    "x plain",
    "Arithmetic %",
    "Memory %",
    "Peak MB",
    "Differs by",
]


def rows_of_table(report: Report) -> list[list[str]]:
    """Returns the header, then a row of text for each line of the report."""
    gpu = any(line["peak_cuda_bytes"] for line in report.lines)
    head = HEAD + (["GPU MB"] if gpu else [])
    return [head, *(_cells(line, gpu) for line in report.lines)]


def _cells(line: dict[str, Any], gpu: bool) -> list[str]:
    seconds, ratio = line["seconds"], line["times_plain"]
    found = [
        _workload(line),
        f"{line['clients']} of {line['population']}",
        _runner(line),
        _number(seconds and seconds["median"], "{:.3g}"),
        f"{seconds['low']:.3g}-{seconds['high']:.3g}" if seconds else "-",
        _number(line["client_steps_per_second"], "{:.0f}"),
        _number(ratio and ratio["median"], "{:.2f}"),
        _number(line["share_of_arithmetic"], "{:.0%}").rstrip("%"),
        _number(line["share_of_memory"], "{:.0%}").rstrip("%"),
        _megabytes(line["peak_resident_bytes"]),
        _number(line["difference"], "{:.0e}"),
    ]
    return found + ([_megabytes(line["peak_cuda_bytes"])] if gpu else [])


def notes_of(report: Report) -> list[str]:
    """Returns sentences about the machine, its peaks, the engine behind ``auto``, and rows that are not compared."""
    machine = report.machine
    where = machine.get("gpu", f"{machine['cores']} cores, {machine['cpu']}")
    found = [f"{where}, torch {machine['torch']}"]
    if machine["load_at_start"] > BUSY * machine["cores"]:
        load = f"{machine['load_at_start']:.1f} on {machine['cores']} cores"
        found.append(
            f"the machine was not idle (load {load} before the first row): times are longer than it needs"
        )
    for precision, peaks in report.peaks.items():
        rates = f"{peaks.flops / 1e9:.0f} GFLOP/s in a matrix product, {peaks.bytes / 1e9:.1f} GB/s in a copy"
        found.append(f"peaks in {precision}: {rates}")
    if any(line["precision"] == "tf32" and line["device"] == "cpu" for line in report.lines):
        found.append("a CPU computes tf32 in float32")
    for line in report.lines:
        ratio = line["times_best_engine"]
        if ratio:
            named = f"{line['engine']} ({line['reason']})"
            found.append(
                f"{_cell(line)}: auto is {named}, {ratio['median']:.2f} of the fastest engine's speed"
            )
        if line["sway"] is not None and line["phase"] == "round":
            found.append(
                f"{_cell(line)}, {_runner(line)}: its model after one round differs from the plain loop's by "
                f"{line['difference']:.1e} of the distance moved; rounding errors in its start move the plain loop's "
                f"model by {line['sway']:.1e}"
            )
        if line["refused"]:
            found.append(f"{_cell(line)}, {_runner(line)}: {line['refused']}")
    return found + _ragged(report)


def _ragged(report: Report) -> list[str]:
    """Returns how much longer a step takes with unequal clients, where the report has both kinds."""
    found = []
    for line in report.lines:
        even = next((other for other in report.lines if _but_for_sizes(line, other)), None)
        if even is not None:
            median, low, high = paired_ratio(_per_step(line), _per_step(even))
            overall = _mean_step(line) / _mean_step(even)
            found.append(
                f"{_cell(line)}, {_runner(line)}: a client-step takes {median:.2f} times as long as with equal sizes "
                f"({low:.2f}-{high:.2f} round by round, {overall:.2f} over all rounds)"
            )
    return found


def _per_step(line: dict[str, Any]) -> list[float]:
    return [seconds / steps for seconds, steps in zip(line["seconds"]["all"], line["steps"], strict=True)]


def _mean_step(line: dict[str, Any]) -> float:
    return float(sum(line["seconds"]["all"]) / sum(line["steps"]))


def _but_for_sizes(ragged: dict[str, Any], even: dict[str, Any]) -> bool:
    same = ("workload", "method", "phase", "clients", "precision", "runner", "threads")
    kinds = (ragged["sizes"], even["sizes"])
    comparable = all(line["seconds"] and not line["refused"] for line in (ragged, even))
    return comparable and kinds == ("lognormal", "equal") and all(ragged[key] == even[key] for key in same)


def _cell(line: dict[str, Any]) -> str:
    return f"{_workload(line)}, {line['clients']} of {line['population']}"


def _workload(line: dict[str, Any]) -> str:
    extras = [line["method"]] if line["method"] != "fedavg" else []
    extras += ["end"] if line["phase"] == "end" else []
    extras += [line["precision"]] if line["precision"] != "float32" else []
    extras += [line["sizes"]] if line["sizes"] != "equal" else []
    extras += [f"seed {line['seed']}"] if line["seed"] else []
    return " ".join([line["workload"], *extras])


def _runner(line: dict[str, Any]) -> str:
    if line["runner"] == "plain":
        return f"plain loop, {line['threads']} thread{'s' if line['threads'] > 1 else ''}"
    if line["runner"] == "auto" and line["engine"]:
        return f"auto ({line['engine']})"
    if (line["refused"] or "").startswith("not installed"):
        return f"{line['runner']} (not installed)"
    return f"{line['runner']} {line['version'] or ''}".strip()


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _megabytes(value: int | None) -> str:
    return _number(value and value / 1e6, "{:.0f}")
