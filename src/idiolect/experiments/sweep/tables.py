"""The results of a sweep as tables, files and pictures: every trial, the best of each method, and what they cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from idiolect.errors import UserError
from idiolect.records import write_atomically
from idiolect.reports import (
    ACCURACY,
    JudgedMetric,
    budget_figure,
    image,
    sweep_figure,
    to_csv,
    to_markdown,
    without_html,
)

__all__ = [
    "TrialResult",
    "best_rows",
    "budget_note",
    "budget_points",
    "sweep_points",
    "trial_rows",
    "with_best",
    "write_sweep",
]

ABSENT = "-"
LONG = 8  # characters of a number from which on it is shortened


@dataclass(frozen=True)
class TrialResult:
    """A trial that was run.

    Args:
        name: the method's name.
        setting: what was varied, as text.
        method: the method with all options, as it ran.
        valid, test, server: accuracies, or what else the runs are judged by: means over clients and seeds; NaN where
            not measured.
        best: the best value on validation data among the method's settings, the first of equals.
        failed: why it was refused.
        varied: what was varied, by key.
        metric: what the runs are judged by.
        number: counts the trials of the method, from 0.
        rounds: rounds that were spent on it, those of all seeds together.
        stopped: the rounds after which it was stopped early, where it was; ``valid`` is the value at that time.
    """

    name: str
    setting: str
    method: str
    seeds: int = 0
    valid: float = math.nan
    test: float = math.nan
    server: float = math.nan
    best: bool = False
    failed: str = ""
    varied: Mapping[str, Any] = field(default_factory=dict)
    metric: JudgedMetric = ACCURACY
    number: int = 0
    rounds: int = 0
    stopped: int = 0

    @property
    def can_be_best(self) -> bool:
        return not self.failed and not self.stopped

    @property
    def shown_setting(self) -> str:
        """What was varied, with four digits of numbers that were drawn."""
        return ", ".join(f"{key}={_short(value)}" for key, value in self.varied.items()) or self.setting


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) and len(repr(value)) > LONG else str(value)


def with_best(tried: Sequence[TrialResult]) -> list[TrialResult]:
    """Marks the best setting of every method; one that was refused or stopped early is never the best."""
    best: dict[str, int] = {}
    sign = 1 if _metric_of(tried).higher_is_better else -1
    for place, one in enumerate(tried):
        if one.can_be_best and (
            one.name not in best or sign * one.valid > sign * tried[best[one.name]].valid
        ):
            best[one.name] = place
    return [replace(one, best=best.get(one.name) == place) for place, one in enumerate(tried)]


def _metric_of(tried: Sequence[TrialResult]) -> JudgedMetric:
    """Returns what all trials are judged by; refuses trials that are judged by different metrics."""
    found = list(dict.fromkeys(one.metric for one in tried if one.can_be_best))
    if len(found) > 1:
        names = " and by ".join(metric.word for metric in found)
        raise UserError(f"the trials of the sweep are judged by {names}; vary nothing that changes the task")
    return next(iter(found), ACCURACY)


def _headings(metric: JudgedMetric) -> list[str]:
    return [metric.heading(what) for what in ("Validation", "Personalised", "Global")]


def trial_rows(tried: Sequence[TrialResult]) -> list[list[str]]:
    """Returns the table of all settings, the header first; the best of each method is marked."""
    metric = _metric_of(tried)
    rows = [["Method", "Setting", *_headings(metric), "Best"]]
    for one in tried:
        mark = "refused" if one.failed else "best" if one.best else ""
        mark = f"stopped after round {one.stopped}" if one.stopped else mark
        numbers = (_text(value, metric) for value in (one.valid, one.test, one.server))
        rows.append([one.name, one.shown_setting, *numbers, mark])
    return rows


def best_rows(tried: Sequence[TrialResult]) -> list[list[str]]:
    """Returns the table of the best settings, with the mean and the worst over all settings of the method."""
    metric = _metric_of(tried)
    unit = " %" if metric.is_share else ""
    rows = [
        [
            "Method",
            "Best setting",
            *_headings(metric),
            "Settings",
            f"All: mean{unit}",
            f"All: worst{unit}",
        ]
    ]
    for name in dict.fromkeys(one.name for one in tried):
        own = [one for one in tried if one.name == name and one.can_be_best]
        best = next((one for one in own if one.best), None)
        if best is None:
            rows.append([name, ABSENT, ABSENT, ABSENT, ABSENT, "0", ABSENT, ABSENT])
            continue
        tests = [one.test for one in own]
        worst = min(tests) if metric.higher_is_better else max(tests)
        numbers = [_text(number, metric) for number in (best.valid, best.test, best.server)]
        over_all = [_text(number, metric) for number in (fmean(tests), worst)]
        rows.append([name, best.shown_setting, *numbers, str(len(own)), *over_all])
    return rows


def write_sweep(folder: Path, tried: Sequence[TrialResult], facts: Mapping[str, Any]) -> list[Path]:
    """Writes all files of a sweep atomically.

    ``sweep.md`` and ``sweep.csv`` hold the trials, ``budget.csv`` what each method had reached with how much, and
    ``sweep.json`` the best settings for ``compare``; pictures are made where there is something to draw.

    Args:
        facts: how the sweep was made, for ``sweep.json``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    metric = _metric_of(tried)
    refused = [f"- {one.name}, {one.setting}: {one.failed}" for one in tried if one.failed]
    best, trials = (to_markdown(rows, "-" * len(rows[0])) for rows in (best_rows(tried), trial_rows(tried)))
    text = "\n".join([_note(metric), budget_note(tried), "", best, trials, *refused])
    spent = budget_points(tried)
    files: dict[str, str | bytes] = {
        "sweep.md": without_html(text.rstrip()) + "\n",
        "sweep.csv": _csv(tried),
        "budget.csv": to_csv([list(spent.columns), *spent.itertuples(index=False)]),
        "sweep.json": json.dumps(facts, indent=2) + "\n",
    }
    points = sweep_points(tried)
    if len(points):
        title = "Every trial of the sweep; chosen on validation data"
        files["sweep.png"] = image(sweep_figure(points, title, metric), "png")
    if len(spent):
        files["budget.png"] = image(
            budget_figure(spent.assign(best=metric.factor * spent["best"]), metric), "png"
        )
    return [write_atomically(folder / name, content) for name, content in files.items()]


def budget_points(tried: Sequence[TrialResult]) -> pd.DataFrame:
    """Returns what each method had reached after each of its trials.

    Columns are `method`, `trials` and `rounds` (both spent up to then) and `best`, the best validation value among the
    trials that were neither refused nor stopped.
    """
    rows = []
    for name in dict.fromkeys(one.name for one in tried):
        best, rounds = math.nan, 0
        own = sorted((one for one in tried if one.name == name), key=lambda one: one.number)
        for count, one in enumerate(own, start=1):
            rounds += one.rounds
            if one.can_be_best:
                better = max if one.metric.higher_is_better else min
                best = one.valid if math.isnan(best) else better(best, one.valid)
            if not math.isnan(best):
                rows.append((name, count, rounds, best))
    return pd.DataFrame(rows, columns=["method", "trials", "rounds", "best"])


def budget_note(tried: Sequence[TrialResult]) -> str:
    """Says how many trials and rounds each method had, and whether that is the same for all."""
    names = list(dict.fromkeys(one.name for one in tried))
    spent = {
        name: (sum(one.name == name for one in tried), sum(one.rounds for one in tried if one.name == name))
        for name in names
    }
    stopped = sum(one.stopped > 0 for one in tried)
    early = f" {stopped} of {len(tried)} trials were stopped early." if stopped else ""
    trials, rounds = ({one[place] for one in spent.values()} for place in (0, 1))
    if len(trials) == 1:
        low, high = min(rounds), max(rounds)
        took = f"{low}" if low == high else f"{low} to {high}"
        return f"Equal budget: {min(trials)} trials of each method, in {took} rounds.{early}"
    if len(rounds) == 1:
        return f"Equal budget: {min(rounds)} rounds of each method.{early}"
    listed = ", ".join(f"{name} {count} trials in {took} rounds" for name, (count, took) in spent.items())
    return f"The budgets differ: {listed}.{early}"


def sweep_points(tried: Sequence[TrialResult]) -> pd.DataFrame:
    """Returns a row per trial and varied key: `panel` (the key), `line` (the method), `x`, `value` and `best`."""
    rows = [
        (key, one.name, value, one.metric.factor * one.valid, one.best)
        for one in tried
        if one.can_be_best
        for key, value in one.varied.items()
    ]
    return pd.DataFrame(rows, columns=["panel", "line", "x", "value", "best"])


def _csv(tried: Sequence[TrialResult]) -> str:
    header = ("method", "setting", "ran_as", "seeds", "valid", "test", "server", "best", "failed")
    more = ("number", "rounds", "stopped")
    names = ("name", "setting", "method", *header[3:], *more)
    return to_csv([(*header, *more), *(tuple(getattr(one, name) for name in names) for one in tried)])


def _note(metric: JudgedMetric) -> str:
    best = "highest" if metric.higher_is_better else "lowest"
    values = "Accuracies" if metric.name == "accuracy" else "Values"
    return (
        f"Best: the setting with the {best} mean validation {metric.word}; test data choose nothing. "
        f"{values} are means over clients and seeds."
    )


def _text(value: float, metric: JudgedMetric) -> str:
    if math.isnan(value):
        return ABSENT
    return f"{100 * value:.2f}" if metric.is_share else metric.text(value)
