"""The report as rows of text for a terminal."""

from __future__ import annotations

from typing import Any

from idiolect.bench.report import Report
from idiolect.bench.spread import paired_ratio

__all__ = ["notes_of", "rows_of_table"]

BUSY = 0.25  # load per core from which the machine is called busy
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
    """The header, then a row for each line of the report."""
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
    """The machine and its peaks, which engine ``auto`` was, and why a row has no number or another model."""
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
                f"{_cell(line)}, {_runner(line)}: its model after one round is {line['difference']:.1e} of the way "
                f"from the plain loop's, which roundings of its start carry {line['sway']:.1e} of the way"
            )
        if line["refused"]:
            found.append(f"{_cell(line)}, {_runner(line)}: {line['refused']}")
    return found + _ragged(report)


def _ragged(report: Report) -> list[str]:
    """What unequal clients cost, where the report has both kinds, turn by turn."""
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
    name = {"pfl-pair": "two processes of pfl", "flower": "two actors of Flower"}.get(
        line["runner"], line["runner"]
    )
    if (line["refused"] or "").startswith("not installed"):
        return f"{name} (not installed)"
    return f"{name} {line['version'] or ''}".strip()


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _megabytes(value: int | None) -> str:
    return _number(value and value / 1e6, "{:.0f}")
