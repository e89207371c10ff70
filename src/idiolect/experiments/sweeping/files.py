"""A sweep as text: the best setting of every method, and all settings."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pandas as pd

from idiolect.experiments.sweeping.result import Tried
from idiolect.records import write_atomically
from idiolect.reports import image, sweep_figure

__all__ = ["best_rows", "sweep_points", "trial_rows", "write_sweep"]

ABSENT = "-"
NOTE = (
    "Best: the setting with the highest mean validation accuracy; test data choose nothing. "
    "Accuracies are means over clients and seeds."
)


def trial_rows(tried: Sequence[Tried]) -> list[list[str]]:
    """All settings, the header first; the best of each method is marked."""
    rows = [["Method", "Setting", "Validation %", "Personalised %", "Global %", "Best"]]
    for one in tried:
        mark = "refused" if one.failed else "best" if one.best else ""
        rows.append([one.name, one.setting, *map(_percent, (one.valid, one.test, one.server)), mark])
    return rows


def best_rows(tried: Sequence[Tried]) -> list[list[str]]:
    """The best setting of each method, and what all its settings come to."""
    rows = [
        [
            "Method",
            "Best setting",
            "Validation %",
            "Personalised %",
            "Global %",
            "Settings",
            "All: mean %",
            "All: worst %",
        ]
    ]
    for name in dict.fromkeys(one.name for one in tried):
        own = [one for one in tried if one.name == name and not one.failed]
        best = next((one for one in own if one.best), None)
        if best is None:
            rows.append([name, ABSENT, ABSENT, ABSENT, ABSENT, "0", ABSENT, ABSENT])
            continue
        tests = [one.test for one in own]
        numbers = [_percent(number) for number in (best.valid, best.test, best.server)]
        rows.append(
            [name, best.setting, *numbers, str(len(own)), _percent(fmean(tests)), _percent(min(tests))]
        )
    return rows


def write_sweep(folder: Path, tried: Sequence[Tried]) -> list[Path]:
    """Writes ``sweep.md`` and ``sweep.csv``, each in one piece, and ``sweep.png`` where something was varied."""
    folder.mkdir(parents=True, exist_ok=True)
    refused = [f"- {one.name}, {one.setting}: {one.failed}" for one in tried if one.failed]
    text = "\n".join(
        [NOTE, "", *_markdown(best_rows(tried)), "", *_markdown(trial_rows(tried)), "", *refused]
    )
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(["method", "setting", "ran_as", "seeds", "valid", "test", "server", "best", "failed"])
    for one in tried:
        writer.writerow(
            [
                one.name,
                one.setting,
                one.method,
                one.seeds,
                one.valid,
                one.test,
                one.server,
                one.best,
                one.failed,
            ]
        )
    files: dict[str, str | bytes] = {"sweep.md": text.rstrip() + "\n", "sweep.csv": target.getvalue()}
    points = sweep_points(tried)
    if len(points):
        files["sweep.png"] = image(
            sweep_figure(points, "Every trial of the sweep; chosen on validation data"), "png"
        )
    return [write_atomically(folder / name, content) for name, content in files.items()]


def sweep_points(tried: Sequence[Tried]) -> pd.DataFrame:
    """A row for every trial and key that it varies: `panel` (the key), `line` (the method), `x`, `value`, `best`."""
    rows = [
        (key, one.name, value, 100 * one.valid, one.best)
        for one in tried
        if not one.failed
        for key, value in one.varied.items()
    ]
    return pd.DataFrame(rows, columns=["panel", "line", "x", "value", "best"])


def _markdown(rows: list[list[str]]) -> list[str]:
    rule = ["---"] * len(rows[0])
    return ["| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]]]


def _percent(value: float) -> str:
    return ABSENT if math.isnan(value) else f"{100 * value:.2f}"
