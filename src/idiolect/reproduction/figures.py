"""A figure's runs, the points they give, and one number for each of its lines."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from idiolect.experiments.campaign import RunOutcome, RunRequest, run_campaign
from idiolect.experiments.execution import Execution
from idiolect.experiments.progress import Watcher
from idiolect.experiments.sweeping.parameter_grids import combinations
from idiolect.options import with_options
from idiolect.records import Run
from idiolect.reproduction.entry import ORACLE, Entry, entry_of, rule_of
from idiolect.reproduction.lines import ORACLES, SUMMARIES, TAKES, gains
from idiolect.reproduction.papers import Figure, Line, Reading
from idiolect.reproduction.plan import Ask

__all__ = ["figure_entries"]

PERCENT = ("accuracy", "top5", "macro_f1")
SCALED = ("value", "sd", "before", "after", "server")
WHY = ("missing", "failed")  # nothing was measured


class Trace(NamedTuple):
    """A line in one scenario with one combination of what the figure varies.

    Args:
        varied: options and settings of this combination.
    """

    label: str
    scenario: str
    method: str
    settings: dict[str, Any]
    line: Line
    varied: dict[str, Any]


def figure_entries(
    figure: Figure,
    ask: Ask,
    where: Execution,
    watcher: Watcher,
    scenarios: Sequence[str] = (),
    methods: Sequence[str] = (),
) -> tuple[list[Entry], pd.DataFrame]:
    """One entry for every line, and all points.

    Columns of the points: `panel` (the scenario), `line`, `group` (the line's name without what varies), `metric`,
    `seed`, one for everything that varies, then what the kind gives.
    """
    traces = [
        trace
        for trace in (*_traces(figure), *_compared(figure))
        if (not scenarios or trace.scenario in scenarios)
        and (not methods or trace.method.partition("(")[0] in methods)
    ]
    tasks = [task for trace in traces for task in _tasks(figure, trace, ask)]
    outcomes = run_campaign(tasks, where)
    if figure.kind == "change":
        found = [_change(figure, old, new, ask, outcomes) for old, new in _pairs(traces)]
    else:
        found = [_entry(figure, trace, ask, outcomes) for trace in traces]
    frames = [frame for _, frames in found for frame in frames]
    entries = [entry for entry, _ in found]
    entries += _best_compared(figure, traces, entries)
    return entries, pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _traces(figure: Figure) -> Iterator[Trace]:
    for line in figure.lines:
        for scenario in line.scenarios:
            for options in combinations(figure.options):
                for settings in combinations(figure.settings):
                    varied = {key: _single(value) for key, value in {**options, **settings}.items()}
                    label = " ".join([line.label, *(f"{key}={value}" for key, value in varied.items())])
                    method = with_options(line.method, options)
                    yield Trace(label, scenario, method, {**line.settings, **settings}, line, varied)


def _compared(figure: Figure) -> Iterator[Trace]:
    """The compared methods, each read over the rounds of every line of the figure; nothing varies."""
    for line in figure.lines:
        for other in figure.compared:
            read = replace(line, reading=replace(other.reading, rounds=line.reading.rounds))
            for scenario in other.scenarios:
                yield Trace(f"{other.label}, {line.label}", scenario, other.method, {}, read, {})


def _best_compared(figure: Figure, traces: list[Trace], entries: list[Entry]) -> Iterator[Entry]:
    """The best of the compared methods for each line and scenario, picked on test data as the paper does."""
    if not figure.compared:
        return
    groups: dict[tuple[str, str], list[Entry]] = {}
    for trace, entry in zip(traces, entries, strict=True):
        if not trace.varied:
            groups.setdefault((trace.line.label, trace.scenario), []).append(entry)
    for (label, _), group in groups.items():
        row = f"[best compared method, {label}]"
        measured = [one for one in group if one.value is not None]
        if len(measured) == len(group):
            yield replace(max(group, key=lambda one: one.value or 0.0), row=row, rule=ORACLE)
        else:
            why = {f: "; ".join(filter(None, dict.fromkeys(getattr(o, f) for o in group))) for f in WHY}
            yield Entry(row, group[0].column, unit=group[0].unit, **why)


def _single(value: Any) -> Any:
    """A list of one value stands for the value."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _tasks(figure: Figure, trace: Trace, ask: Ask) -> Iterator[RunRequest]:
    take = partial(_take, kind=figure.kind, reading=ask.reading(trace.line.reading))
    for seed in ask.seeds:
        experiment, notes = ask.experiment(trace.scenario, trace.method, seed, trace.settings)
        yield RunRequest((trace.label, trace.scenario, seed), experiment, notes, take)


def _take(run: Run, kind: str, reading: Reading) -> pd.DataFrame:
    return TAKES[kind](run, reading)


def _entry(
    figure: Figure, trace: Trace, ask: Ask, outcomes: Mapping[Hashable, RunOutcome]
) -> tuple[Entry, list[pd.DataFrame]]:
    wanted = [outcomes[trace.label, trace.scenario, seed] for seed in ask.seeds]
    frames = [] if _refused(wanted) else [_scaled(outcome.value, trace) for outcome in wanted]
    return _summed(figure, trace.label, trace, ask, wanted, frames)


def _change(
    figure: Figure, old: Trace, new: Trace, ask: Ask, outcomes: Mapping[Hashable, RunOutcome]
) -> tuple[Entry, list[pd.DataFrame]]:
    wanted = [outcomes[t.label, t.scenario, seed] for t in (old, new) for seed in ask.seeds]
    frames = []
    if not _refused(wanted):
        both = zip(wanted[: len(ask.seeds)], wanted[len(ask.seeds) :], strict=True)
        frames = [_scaled(gains(a.value, b.value), new) for a, b in both]
    return _summed(figure, f"{new.label} against {old.label}", new, ask, wanted, frames)


def _summed(
    figure: Figure, label: str, trace: Trace, ask: Ask, wanted: list[RunOutcome], frames: list[pd.DataFrame]
) -> tuple[Entry, list[pd.DataFrame]]:
    known: dict[str, Any] = {"row": label, "column": trace.scenario, "unit": _unit(figure, trace)}
    if not ask.quick:
        known["paper"] = _number(figure, trace)
    if not frames:
        missing, failed = (
            "; ".join(filter(None, dict.fromkeys(getattr(o, field) for o in wanted))) for field in WHY
        )
        return Entry(**known, missing=missing, failed=failed), []
    _, summary = SUMMARIES[figure.kind]
    named_by = {"panel": trace.scenario, "line": label, "group": trace.line.label}
    named_by["metric"] = trace.line.reading.metric
    named = [
        frame.assign(**trace.varied, **named_by, seed=seed)
        for frame, seed in zip(frames, ask.seeds, strict=True)
    ]
    known["rule"] = "oracle" if figure.kind in ORACLES else rule_of(trace.line.reading.predictor)
    return entry_of([summary(frame) for frame in frames], **known, ran_as=trace.method), named


def _refused(wanted: list[RunOutcome]) -> bool:
    return any(outcome.missing or outcome.failed for outcome in wanted)


def _pairs(traces: list[Trace]) -> Iterator[tuple[Trace, Trace]]:
    """The two lines of each scenario, the older first."""
    by_scenario: dict[str, list[Trace]] = {}
    for trace in traces:
        by_scenario.setdefault(trace.scenario, []).append(trace)
    yield from ((pair[0], pair[1]) for pair in by_scenario.values() if len(pair) == 2)


def _unit(figure: Figure, trace: Trace) -> str:
    return "%" if trace.line.reading.metric in PERCENT and figure.kind != "change" else ""


def _scaled(points: pd.DataFrame, trace: Trace) -> pd.DataFrame:
    if trace.line.reading.metric not in PERCENT:
        return points
    return points.assign(**{name: 100 * points[name] for name in SCALED if name in points})


def _number(figure: Figure, trace: Trace) -> float | None:
    """What the paper prints of this line, where it prints a number of a line or a scenario."""
    for number in figure.numbers:
        told = (number.line, number.scenario)
        if any(told) and number.line in ("", trace.line.label) and number.scenario in ("", trace.scenario):
            return number.value
    return None
