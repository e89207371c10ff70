"""Reproduces a paper's figure: makes its runs, sums up each line in a number, and writes the points and the picture."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from idiolect.experiments.execution import Execution
from idiolect.experiments.jobs.campaign import RunOutcome, RunRequest
from idiolect.experiments.sweep.parameter_grids import combinations
from idiolect.option_parsing import with_options
from idiolect.records import Run
from idiolect.reproduction.compared_number import ORACLE, ComparedNumber, selection_rule
from idiolect.reproduction.papers import FIGURE_KINDS, FigureLine, MetricReading, PaperFigure, table
from idiolect.reproduction.pictures import points_of_tables, write_figure_files
from idiolect.reproduction.points_from_runs import (
    KINDS_OF_SINGLE_ROUNDS,
    LINE_SUMMARIES,
    ORACLE_KINDS,
    POINTS_OF_RUN,
    client_gains,
)
from idiolect.reproduction.reproduction_result import Reproduction, write_reproduction
from idiolect.reproduction.request import ReproductionRequest, refuse_unknown_names
from idiolect.reproduction.studies.study_figures import STUDY_KINDS, reproduce_study_figure
from idiolect.reproduction.tables import choice_notes, table_numbers, table_requests

__all__ = ["figure_requests", "reproduce_figure"]

PERCENT = ("accuracy", "top5", "macro_f1")
SCALED = ("value", "sd", "before", "after", "server")

Outcomes = Mapping[Hashable, RunOutcome]
Measured = tuple[ComparedNumber, list[pd.DataFrame]]  # a line's number, and its points for every seed


def reproduce_figure(figure: PaperFigure, request: ReproductionRequest, execution: Execution) -> Reproduction:
    """Makes the runs of a figure, or of some of its scenarios and methods; writes numbers, points and picture."""
    if figure.kind in ("schematic", "unknown"):
        note = f"nothing is run for {figure.id}: {FIGURE_KINDS[figure.kind]}"
        return Reproduction(figure.id, figure.caption, request.quick, (), (note,), None)
    if figure.kind in STUDY_KINDS:
        return reproduce_study_figure(figure, request, execution)
    if figure.kind == "table":
        numbers = _numbers_of_tables(figure, request, execution)
        points = points_of_tables(numbers, figure.tables)
        notes = list(dict.fromkeys(n for id in figure.tables for n in choice_notes(table(id), request)))
        notes = [*figure.notes, *notes]
    else:
        numbers, points = _numbers_of_lines(figure, request, execution)
        named = {one.column: request.shown_name(one.column, [one.column]) for one in numbers}
        numbers = [replace(one, column=named[one.column]) for one in numbers]
        points = points.assign(panel=points["panel"].map(named)) if len(points) else points
        notes = _notes(figure, request)
    done, folder = write_reproduction(figure.id, figure.caption, numbers, notes, request, execution.out)
    if len(points):
        write_figure_files(_ordered(points), figure, folder, request)
    return done


def _notes(figure: PaperFigure, request: ReproductionRequest) -> list[str]:
    notes = [f"a line's number: {LINE_SUMMARIES[figure.kind][0]}", *figure.notes]
    if figure.kind == "degradation":
        notes.append(
            f"a download is compared with the client's last personalised model at the next {request.delta}"
        )
    if not request.quick:
        notes += [f"the paper on {number.what}: {number.value:g}" for number in figure.numbers]
    return notes


def _ordered(points: pd.DataFrame) -> pd.DataFrame:
    """Puts the columns that identify a point first."""
    first = [name for name in ("panel", "line", "seed") if name in points]
    return points[[*first, *(name for name in points if name not in first)]]


def _numbers_of_tables(
    figure: PaperFigure, request: ReproductionRequest, execution: Execution
) -> list[ComparedNumber]:
    """Returns one column of several tables, each table as a column of the figure."""
    request = replace(request, columns=(figure.column,))
    return [
        replace(one, column=id)
        for id in figure.tables
        for one in table_numbers(table(id), request, execution)
    ]


class LineVariant(NamedTuple):
    """A line of a figure in one scenario, with one combination of what the figure varies.

    Args:
        varied: options and settings of this combination.
    """

    label: str
    scenario: str
    method: str
    settings: dict[str, Any]
    line: FigureLine
    varied: dict[str, Any]


def _numbers_of_lines(
    figure: PaperFigure, request: ReproductionRequest, execution: Execution
) -> tuple[list[ComparedNumber], pd.DataFrame]:
    """Returns a number for every line, and all points.

    Columns of the points: `panel` (the scenario), `line`, `group` (the line's name without what varies), `metric`,
    `seed`, one for everything that varies, then those of the kind.
    """
    refuse_unknown_names("scenario", request.columns, figure.scenarios)
    lines = (*figure.lines, *figure.compared)
    refuse_unknown_names("method", request.methods, {line.method.partition("(")[0] for line in lines})
    request = replace(request, every_round=figure.kind in KINDS_OF_SINGLE_ROUNDS)
    variants = _chosen_variants(figure, request)
    outcomes = request.outcomes(
        [one for variant in variants for one in _run_requests(figure, variant, request)], execution
    )
    if figure.kind == "change":
        found = [_change(figure, old, new, request, outcomes) for old, new in _pairs(variants)]
    else:
        found = [_variant_number(figure, variant, request, outcomes) for variant in variants]
    frames = [frame for _, frames in found for frame in frames]
    numbers = [number for number, _ in found]
    numbers += _best_compared(figure, variants, numbers)
    return numbers, pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def figure_requests(figure: PaperFigure, request: ReproductionRequest) -> list[RunRequest]:
    """Returns a run request for everything that a figure needs to be run; studies and drawings need none."""
    if figure.kind == "table":
        asked = replace(request, columns=(figure.column,))
        return [one for id in figure.tables for one in table_requests(table(id), asked)]
    request = replace(request, every_round=figure.kind in KINDS_OF_SINGLE_ROUNDS)
    variants = _chosen_variants(figure, request)
    return [one for variant in variants for one in _run_requests(figure, variant, request)]


def _chosen_variants(figure: PaperFigure, request: ReproductionRequest) -> list[LineVariant]:
    every = (*_own_variants(figure), *_compared_variants(figure))
    return [variant for variant in every if request.wants(variant.scenario, variant.method)]


def _own_variants(figure: PaperFigure) -> Iterator[LineVariant]:
    for line in figure.lines:
        for scenario in line.scenarios:
            for options in combinations(figure.options):
                for settings in combinations(figure.settings):
                    varied = {key: _single(value) for key, value in {**options, **settings}.items()}
                    label = " ".join([line.label, *(f"{key}={value}" for key, value in varied.items())])
                    method = with_options(line.method, options)
                    yield LineVariant(label, scenario, method, {**line.settings, **settings}, line, varied)


def _single(value: Any) -> Any:
    """Returns the value that a list of one value stands for."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _compared_variants(figure: PaperFigure) -> Iterator[LineVariant]:
    """Yields the compared methods, each read over the rounds of every line of the figure; nothing varies."""
    for line in figure.lines:
        for other in figure.compared:
            read = replace(line, reading=replace(other.reading, rounds=line.reading.rounds))
            for scenario in other.scenarios:
                yield LineVariant(f"{other.label}, {line.label}", scenario, other.method, {}, read, {})


def _run_requests(
    figure: PaperFigure, variant: LineVariant, request: ReproductionRequest
) -> Iterator[RunRequest]:
    take = partial(_points, kind=figure.kind, reading=request.reading(variant.line.reading))
    for seed in request.seeds:
        experiment, notes = request.experiment(variant.scenario, variant.method, seed, variant.settings)
        yield RunRequest((variant.label, variant.scenario, seed), experiment, notes, take)


def _points(run: Run, kind: str, reading: MetricReading) -> pd.DataFrame:
    return POINTS_OF_RUN[kind](run, reading)


def _variant_number(
    figure: PaperFigure, variant: LineVariant, request: ReproductionRequest, outcomes: Outcomes
) -> Measured:
    number = _unmeasured(variant.label, figure, variant, request)
    request = request.with_recorded_seeds(lambda seed: [outcomes[variant.label, variant.scenario, seed]])
    wanted = [outcomes[variant.label, variant.scenario, seed] for seed in request.seeds]
    if _any_without_value(wanted):
        return number.not_measured(wanted), []
    number = number.divergent({seed: [one] for seed, one in zip(request.seeds, wanted, strict=True)})
    if number.diverged:
        return number, []
    frames = [_scaled(outcome.value, variant) for outcome in wanted]
    return _summed_up(number, figure, variant, request, frames)


def _change(
    figure: PaperFigure, old: LineVariant, new: LineVariant, request: ReproductionRequest, outcomes: Outcomes
) -> Measured:
    """Sums up what every client gains from one variant to the other."""
    number = _unmeasured(f"{new.label} against {old.label}", figure, new, request)
    request = request.with_recorded_seeds(
        lambda seed: [outcomes[variant.label, variant.scenario, seed] for variant in (old, new)]
    )
    before, after = (
        [outcomes[variant.label, variant.scenario, seed] for seed in request.seeds] for variant in (old, new)
    )
    if _any_without_value([*before, *after]):
        return number.not_measured([*before, *after]), []
    runs = zip(before, after, strict=True)
    number = number.divergent(dict(zip(request.seeds, runs, strict=True)))
    if number.diverged:
        return number, []
    gains = [client_gains(first.value, last.value) for first, last in zip(before, after, strict=True)]
    return _summed_up(number, figure, new, request, [_scaled(frame, new) for frame in gains])


def _unmeasured(
    row: str, figure: PaperFigure, variant: LineVariant, request: ReproductionRequest
) -> ComparedNumber:
    """Returns a number without its value: the unit, and the paper's number unless the request is quick."""
    unit = "%" if variant.line.reading.metric in PERCENT and figure.kind != "change" else ""
    paper = None if request.quick else _printed(figure, variant)
    return ComparedNumber(row, variant.scenario, unit=unit, paper=paper)


def _summed_up(
    number: ComparedNumber,
    figure: PaperFigure,
    variant: LineVariant,
    request: ReproductionRequest,
    frames: list[pd.DataFrame],
) -> Measured:
    """Adds the mean of the frames' summaries, one frame per seed; the points get the columns that identify them."""
    _, summary = LINE_SUMMARIES[figure.kind]
    rule = ORACLE if figure.kind in ORACLE_KINDS else selection_rule(variant.line.reading.predictor)
    number = replace(number.measured([summary(frame) for frame in frames]), rule=rule, ran_as=variant.method)
    columns = {
        **{"panel": variant.scenario, "line": number.row, "group": variant.line.label},
        "metric": variant.line.reading.metric,
    }
    points = [
        frame.assign(**variant.varied, **columns, seed=seed)
        for frame, seed in zip(frames, request.seeds, strict=True)
    ]
    return number, points


def _any_without_value(outcomes: Sequence[RunOutcome]) -> bool:
    return any(outcome.missing or outcome.failed for outcome in outcomes)


def _scaled(points: pd.DataFrame, variant: LineVariant) -> pd.DataFrame:
    """Turns fractions into percentages."""
    if variant.line.reading.metric not in PERCENT:
        return points
    return points.assign(**{name: 100 * points[name] for name in SCALED if name in points})


def _printed(figure: PaperFigure, variant: LineVariant) -> float | None:
    """Returns what the paper prints of this line, where it prints a number of a line or a scenario."""
    for number in figure.numbers:
        named = number.line or number.scenario
        if named and number.line in ("", variant.line.label) and number.scenario in ("", variant.scenario):
            return number.value
    return None


def _pairs(variants: list[LineVariant]) -> Iterator[tuple[LineVariant, LineVariant]]:
    """Yields the two lines of each scenario, the older first."""
    by_scenario: dict[str, list[LineVariant]] = {}
    for variant in variants:
        by_scenario.setdefault(variant.scenario, []).append(variant)
    yield from ((pair[0], pair[1]) for pair in by_scenario.values() if len(pair) == 2)


def _best_compared(
    figure: PaperFigure, variants: list[LineVariant], numbers: list[ComparedNumber]
) -> Iterator[ComparedNumber]:
    """Yields the best compared method for each line and scenario, chosen on test data as the paper does."""
    if not figure.compared:
        return
    groups: dict[tuple[str, str], list[ComparedNumber]] = {}
    for variant, number in zip(variants, numbers, strict=True):
        if not variant.varied:
            groups.setdefault((variant.line.label, variant.scenario), []).append(number)
    for (label, _), group in groups.items():
        row = f"[best compared method, {label}]"
        if all(one.value is not None or one.diverged for one in group):  # a number wins over a divergence
            best = max(group, key=lambda one: (one.value is not None, one.value or 0.0))
            yield replace(best, row=row, rule=ORACLE)
        else:
            empty = ComparedNumber(row, group[0].column, unit=group[0].unit)
            yield empty.lacking((one.missing for one in group), (one.failed for one in group))
