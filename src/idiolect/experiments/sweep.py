"""``sweep``: many settings of methods and of the scene; the best is chosen on validation data and written as tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd

from idiolect.errors import UserError, list_of, refuse_outside
from idiolect.experiments.campaign import RunOutcome, RunRequest, run_campaign
from idiolect.experiments.execution import Execution, split_keywords
from idiolect.experiments.identity import hash_of
from idiolect.experiments.own_data import with_own_data
from idiolect.experiments.parameter_grids import grid
from idiolect.experiments.spec import Experiment, with_settings
from idiolect.experiments.sweep_axes import Trial, parse_axis, trials_of
from idiolect.records import Run, spec_hash, write_atomically
from idiolect.reports import ACCURACY, JudgedMetric, image, judged_by, sweep_figure, to_csv, to_markdown
from idiolect.statistics import client_scores, headline, server_curve

__all__ = [
    "Sweep",
    "TrialResult",
    "TrialScores",
    "best_rows",
    "sweep",
    "sweep_points",
    "trial_rows",
    "trial_scores",
    "with_best",
]

ABSENT = "-"


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


@dataclass(frozen=True)
class Sweep:
    """The outcome of a sweep.

    Args:
        tried: every trial, in order; the best of each method is marked.
        folder: holds the tables.
    """

    tried: tuple[TrialResult, ...]
    folder: Path

    @property
    def best(self) -> dict[str, TrialResult]:
        """The best trial of every method, by the method's name."""
        return {one.name: one for one in self.tried if one.best}


def sweep(
    methods: Sequence[str] = (),
    *,
    vary: Sequence[str] = (),
    preset_grid: str | None = None,
    draws: int = 0,
    seeds: Sequence[int] = (0,),
    experiment: Experiment | Callable[[str], Experiment] | None = None,
    execution: Execution | None = None,
    **settings: Any,
) -> Sweep:
    """Runs every trial that is not done yet and writes which setting of each method is best on validation data.

    Args:
        methods: names, with options that stay as they are; those of the preset grid unless given.
        vary: axes such as ``map.alpha=0.5,0.9`` or ``learning_rate=0.01..0.1:log``.
        preset_grid: settings that a paper's authors tried, by name: ``map``, ``persfl``, ...
        draws: number of random trials of each method; 0 makes all combinations.
        seeds: every trial runs once for each.
        experiment: what all trials have in common, or a function that gives each method its experiment.
        execution: how the runs are made; its ``out`` holds the runs and a folder with the tables.  Interrupted runs
            are always resumed.
        settings: fields of ``Experiment`` and of ``Execution``; see ``run``.
    """
    refuse_outside("draws", draws, 0)
    tried = grid(preset_grid).settings(in_scene=callable(experiment)) if preset_grid else {}
    methods = list_of("methods", methods, str, "['fedavg', 'fedper']") or list(tried)
    vary = list_of("vary", vary, str, "['learning_rate=0.01,0.03']")
    seeds = list_of("seeds", seeds, int, "range(3)")
    if not methods or not seeds or not (vary or tried):
        raise UserError("a sweep needs methods, seeds, and something to vary: --vary or --preset-grid")
    execution, chosen = split_keywords(execution, with_own_data(settings, experiment is None))
    trials = trials_of(methods, [parse_axis(text) for text in vary], tried, draws, min(seeds))
    made = [_experiment(trial, experiment, chosen) for trial in trials]
    requests = [
        RunRequest((place, seed), replace(one, seed=seed), (), trial_scores)
        for place, one in enumerate(made)
        for seed in seeds
    ]
    outcomes = run_campaign(requests, execution)
    found = with_best(
        [
            _trial_result(trial, one, [outcomes[place, seed] for seed in seeds])
            for place, (trial, one) in enumerate(zip(trials, made, strict=True))
        ]
    )
    identity = spec_hash({"specs": [hash_of(one) for one in made], "seeds": seeds})
    folder = Path(execution.out) / f"sweep-{identity[:8]}"
    _write_sweep(folder, found)
    return Sweep(tuple(found), folder)


def _experiment(
    trial: Trial, base: Experiment | Callable[[str], Experiment] | None, settings: Mapping[str, Any]
) -> Experiment:
    given = base(trial.method) if callable(base) else replace(base or Experiment(), method=trial.method)
    made = with_settings(given, {**settings, **trial.settings})
    if made.valid <= 0:
        raise UserError(
            "a sweep chooses on validation data and this experiment holds none out; set valid above 0, such as "
            "--set valid=0.1"
        )
    return replace(made, score_valid=True)


class TrialScores(NamedTuple):
    """What a run is judged by, means over clients; ``server`` is NaN for a method without a global model."""

    valid: float
    test: float
    server: float
    metric: JudgedMetric = ACCURACY


def trial_scores(run: Run) -> TrialScores:
    """Returns the final values of the method's headline predictor.

    Where that predictor stands for a choice between several, they are those of the one that was chosen.
    """
    name = str(run.manifest.get("choices", {}).get(headline(run), headline(run)))
    valid, test = (client_scores(run, name, split=split) for split in ("valid", "test"))
    if valid.empty:
        raise UserError(f"run {run.manifest['name']} was not scored on validation data")
    server = server_curve(run)
    shared = float(server.iloc[-1]) if len(server) else math.nan
    return TrialScores(float(valid.mean()), float(test.mean()), shared, judged_by([run]))


def _trial_result(trial: Trial, made: Experiment, outcomes: Sequence[RunOutcome]) -> TrialResult:
    missing = next((outcome.missing for outcome in outcomes if outcome.missing), "")
    if missing:
        raise UserError(f"the sweep cannot run: {missing}")
    varied = {**trial.options, **trial.settings}
    setting = ", ".join(f"{key}={value}" for key, value in varied.items()) or "as it is"
    failed = next((outcome.failed for outcome in outcomes if outcome.failed), "")
    if failed:
        return TrialResult(trial.name, setting, made.method, failed=failed, varied=varied)
    scores = [outcome.value for outcome in outcomes]
    valid, test, server = (fmean(column) for column in zip(*(one[:3] for one in scores), strict=True))
    return TrialResult(
        trial.name,
        setting,
        made.method,
        len(outcomes),
        valid,
        test,
        server,
        varied=varied,
        metric=scores[0].metric,
    )


def with_best(tried: Sequence[TrialResult]) -> list[TrialResult]:
    """Marks the best setting of every method; a refused one is never the best."""
    best: dict[str, int] = {}
    sign = 1 if _metric_of(tried).higher_is_better else -1
    for place, one in enumerate(tried):
        if not one.failed and (one.name not in best or sign * one.valid > sign * tried[best[one.name]].valid):
            best[one.name] = place
    return [replace(one, best=best.get(one.name) == place) for place, one in enumerate(tried)]


def _metric_of(tried: Sequence[TrialResult]) -> JudgedMetric:
    """Returns what all trials are judged by; refuses trials that are judged by different metrics."""
    found = list(dict.fromkeys(one.metric for one in tried if not one.failed))
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
        numbers = (_text(value, metric) for value in (one.valid, one.test, one.server))
        rows.append([one.name, one.setting, *numbers, mark])
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
        own = [one for one in tried if one.name == name and not one.failed]
        best = next((one for one in own if one.best), None)
        if best is None:
            rows.append([name, ABSENT, ABSENT, ABSENT, ABSENT, "0", ABSENT, ABSENT])
            continue
        tests = [one.test for one in own]
        worst = min(tests) if metric.higher_is_better else max(tests)
        numbers = [_text(number, metric) for number in (best.valid, best.test, best.server)]
        over_all = [_text(number, metric) for number in (fmean(tests), worst)]
        rows.append([name, best.setting, *numbers, str(len(own)), *over_all])
    return rows


def _write_sweep(folder: Path, tried: Sequence[TrialResult]) -> list[Path]:
    """Writes ``sweep.md`` and ``sweep.csv`` atomically, and ``sweep.png`` where something was varied."""
    folder.mkdir(parents=True, exist_ok=True)
    refused = [f"- {one.name}, {one.setting}: {one.failed}" for one in tried if one.failed]
    best, trials = (to_markdown(rows, "-" * len(rows[0])) for rows in (best_rows(tried), trial_rows(tried)))
    text = "\n".join([_note(_metric_of(tried)), "", best, trials, *refused])
    files: dict[str, str | bytes] = {"sweep.md": text.rstrip() + "\n", "sweep.csv": _csv(tried)}
    points = sweep_points(tried)
    if len(points):
        files["sweep.png"] = image(
            sweep_figure(points, "Every trial of the sweep; chosen on validation data", _metric_of(tried)),
            "png",
        )
    return [write_atomically(folder / name, content) for name, content in files.items()]


def sweep_points(tried: Sequence[TrialResult]) -> pd.DataFrame:
    """Returns a row per trial and varied key: `panel` (the key), `line` (the method), `x`, `value` and `best`."""
    rows = [
        (key, one.name, value, one.metric.factor * one.valid, one.best)
        for one in tried
        if not one.failed
        for key, value in one.varied.items()
    ]
    return pd.DataFrame(rows, columns=["panel", "line", "x", "value", "best"])


def _csv(tried: Sequence[TrialResult]) -> str:
    header = ("method", "setting", "ran_as", "seeds", "valid", "test", "server", "best", "failed")
    rows = [
        (one.name, one.setting, one.method, one.seeds, one.valid, one.test, one.server, one.best, one.failed)
        for one in tried
    ]
    return to_csv([header, *rows])


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
