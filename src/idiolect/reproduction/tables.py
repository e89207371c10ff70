"""Reproduces a paper's table: makes the runs that its cells need and puts each measured number beside the printed one.

Cells of settings and of federation sizes need no run.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from statistics import fmean, stdev
from typing import NamedTuple

import pandas as pd

from idiolect.data.availability import availability
from idiolect.errors import UserError
from idiolect.experiments.execution import Execution
from idiolect.experiments.jobs.campaign import RunOutcome, RunRequest
from idiolect.experiments.setting import prepare
from idiolect.experiments.spec import Experiment
from idiolect.option_parsing import with_options
from idiolect.reproduction.compared_number import ORACLE, ComparedNumber, selection_rule
from idiolect.reproduction.papers import MetricReading, PaperTable, TableCell
from idiolect.reproduction.papers.metric_reading import read_values
from idiolect.reproduction.reproduction_result import Reproduction, write_reproduction
from idiolect.reproduction.request import ReproductionRequest, refuse_unknown_names
from idiolect.reproduction.scenarios.scenario import runs_authors_code

__all__ = [
    "FROM_RUNS",
    "cell_number",
    "cell_requests",
    "choice_notes",
    "refuse_unknown_cells",
    "reproduce_table",
    "table_numbers",
    "table_requests",
]

SCALE = {"%": 100.0, "": 1.0}
FROM_RUNS = ("run", "choice")

Outcomes = Mapping[Hashable, RunOutcome]


def reproduce_table(table: PaperTable, request: ReproductionRequest, execution: Execution) -> Reproduction:
    """Makes the runs of a table, or of some of its columns and methods, and writes the table."""
    numbers = table_numbers(table, request, execution)
    scenarios = {cell.column: cell.scenarios for cell in table.cells}
    named = {column: request.shown_name(column, names) for column, names in scenarios.items()}
    numbers = [replace(one, column=named[one.column]) for one in numbers]
    notes = [*table.notes, *choice_notes(table, request)]
    return write_reproduction(table.id, table.caption, numbers, notes, request, execution.out)[0]


def choice_notes(table: PaperTable, request: ReproductionRequest) -> list[str]:
    """Returns what has to be said where the paper prints the best of several settings."""
    if not table.choice or request.grid:
        return []
    return [
        f"one setting of each method is run; the paper prints {table.choice} (best_of_grid runs them all)"
    ]


def table_numbers(
    table: PaperTable, request: ReproductionRequest, execution: Execution
) -> list[ComparedNumber]:
    """Returns the numbers of the cells that are asked for."""
    cells = _chosen_cells(table, request)
    outcomes = request.outcomes(table_requests(table, request), execution)
    doubts = {column.id: column.note for column in table.columns}
    return [
        cell_number(cell, request, outcomes, doubts[cell.column])
        if cell.reading.source in FROM_RUNS
        else _number_without_run(cell, request, execution)
        for cell in cells
    ]


def table_requests(table: PaperTable, request: ReproductionRequest) -> list[RunRequest]:
    """Returns a run request for everything that the cells that are asked for need to be run."""
    cells = [cell for cell in _chosen_cells(table, request) if cell.reading.source in FROM_RUNS]
    return [one for cell in cells for one in cell_requests(cell, request)]


def refuse_unknown_cells(table: PaperTable, request: ReproductionRequest) -> None:
    """Raises where a column, method or row is asked for that the table does not have."""
    refuse_unknown_names("column", request.columns, [column.id for column in table.columns])
    refuse_unknown_names("method", request.methods, {cell.method.partition("(")[0] for cell in table.cells})
    refuse_unknown_names("row", request.rows, {cell.row for cell in table.cells})


def _chosen_cells(table: PaperTable, request: ReproductionRequest) -> list[TableCell]:
    """Returns the cells that are asked for and in which the paper prints a number."""
    refuse_unknown_cells(table, request)
    return [
        cell
        for cell in table.cells
        if cell.value is not None
        and request.wants(cell.column, cell.method)
        and (not request.rows or cell.row in request.rows)
    ]


def cell_requests(cell: TableCell, request: ReproductionRequest) -> list[RunRequest]:
    """Returns a run request for every setting of the method, scenario and seed; the cell's number needs them all."""
    found = []
    reading = request.reading(cell.reading)
    for method in _settings(cell, request):
        for name in cell.scenarios:
            for seed in request.seeds:
                experiment, notes = request.experiment(name, method, seed)
                key = _key(cell, method, name, seed)
                found.append(RunRequest(key, experiment, notes, partial(read_values, reading=reading)))
    return found


def cell_number(
    cell: TableCell, request: ReproductionRequest, outcomes: Outcomes, note: str = ""
) -> ComparedNumber:
    """Returns the cell's number beside the paper's.

    Of several settings the best mean over seeds counts, as in the paper; a cell of several scenarios is the mean of
    their best, each scenario having its own.  A setting that diverged in any seed has no mean and loses against the
    others; where all did, the cell has no number.
    """
    settings = _settings(cell, request)
    found = ComparedNumber(
        cell.row, cell.column, unit=cell.unit, rule=selection_rule(cell.reading.predictor), note=note
    )
    if not request.quick:
        found = replace(found, paper=cell.value, paper_spread=cell.spread)

    def of_seed(seed: int) -> list[RunOutcome]:
        return [outcomes[_key(cell, method, name, seed)] for method in settings for name in cell.scenarios]

    request = request.with_recorded_seeds(of_seed)
    wanted = [one for seed in request.seeds for one in of_seed(seed)]
    if any(one.missing or one.failed for one in wanted):
        return found.not_measured(wanted)
    scenes = [replace(cell, scenarios=(name,)) for name in cell.scenarios] if len(settings) > 1 else [cell]
    try:
        tried = [
            [_result_of(method, scene, request, outcomes, found) for method in settings] for scene in scenes
        ]
    except UserError as error:
        return replace(found, failed=str(error))
    for results in tried:
        if all(one.diverged for one in results):
            return min((one.diverged for one in results if one.diverged), key=lambda one: one.diverged)
    ended = [[one for one in results if not one.diverged] for results in tried]
    found = replace(found, lost=sum(map(len, tried)) - sum(map(len, ended)))
    if len(settings) > 1:
        found = replace(found, rule=ORACLE)
    return replace(_best_of(ended, cell, found), seeds=len(request.seeds))


class _SettingResult(NamedTuple):
    """What one setting of the method gave: a number for each seed, and the spread printed beside its mean.

    Args:
        diverged: the cell as one that diverged, where a run of the setting did; there are no numbers then.
    """

    numbers: list[float]
    spread: float | None
    ran_as: str
    diverged: ComparedNumber | None = None


def _best_of(
    tried: Sequence[Sequence[_SettingResult]], cell: TableCell, found: ComparedNumber
) -> ComparedNumber:
    """Fills in the mean of each scene's best setting; `tried` holds the settings of every scene."""
    best = [max(results, key=lambda one: fmean(one.numbers)) for results in tried]
    spread, ran_as = best[0].spread, best[0].ran_as
    if len(tried) == 1 and len(tried[0]) > 1:
        spread = stdev(fmean(one.numbers) for one in tried[0])
    if len(tried) > 1:
        spread = None
        ran_as = "; ".join(f"{name}: {one.ran_as}" for name, one in zip(cell.scenarios, best, strict=True))
    numbers = [fmean(of_seed) for of_seed in zip(*(one.numbers for one in best), strict=True)]
    return replace(found.measured(numbers), spread=spread, ran_as=ran_as)


def _result_of(
    method: str, cell: TableCell, request: ReproductionRequest, outcomes: Outcomes, found: ComparedNumber
) -> _SettingResult:
    scale = SCALE[cell.unit]
    runs = {
        seed: [outcomes[_key(cell, method, name, seed)] for name in cell.scenarios] for seed in request.seeds
    }
    if (diverged := found.divergent(runs)).diverged:
        return _SettingResult([], None, "", diverged)
    by_seed = [[one.value for one in outcomes_of_seed] for outcomes_of_seed in runs.values()]
    ran_as = request.experiment(cell.scenarios[0], method, request.seeds[0])[0].method
    if cell.reading.over == "sd":
        return _SettingResult([scale * float(series.std(ddof=1)) for (series,) in by_seed], None, ran_as)
    numbers = [scale * fmean(_single_number(series, cell.reading) for series in scenes) for scenes in by_seed]
    spread = None
    over_clients = cell.reading.population == "all" and cell.reading.split != "server"
    if cell.spread is not None and over_clients and len(cell.scenarios) == 1:
        spread = scale * fmean(float(series.std(ddof=0)) for (series,) in by_seed)
    return _SettingResult(numbers, spread, ran_as)


def _single_number(series: pd.Series, reading: MetricReading) -> float:
    if reading.over != "client":
        return float(series.mean())
    if reading.client not in series.index:
        raise UserError(f"there is no client {reading.client}; the run has {len(series)}")
    return float(series[reading.client])


def _settings(cell: TableCell, request: ReproductionRequest) -> list[str]:
    """Returns the cell's method in every setting that is run."""
    official = runs_authors_code(request.preset) and cell.official_method
    method = cell.official_method if official else cell.method
    return [with_options(one, cell.options) for one in request.settings_of(method)]


def _key(cell: TableCell, method: str, scenario: str, seed: int) -> Hashable:
    return (cell.table, cell.row, cell.column, method, scenario, seed)


def _number_without_run(
    cell: TableCell, request: ReproductionRequest, execution: Execution
) -> ComparedNumber:
    """Returns a size of the federation, or a setting of the experiment, beside the paper's."""
    experiment, _ = request.experiment(cell.scenarios[0], cell.method or "fedavg", request.seeds[0])
    found = ComparedNumber(cell.row, cell.column, unit=cell.unit, paper=None if request.quick else cell.value)
    if cell.reading.source == "setting":
        return replace(found, value=float(getattr(experiment, cell.reading.metric)), seeds=1)
    data = availability(experiment.dataset, execution.data_dir)
    if not data.present:
        return replace(found, missing=f"{data.dataset} is not on this machine; {data.advice}")
    try:
        sizes = _federation_sizes(experiment, execution)
    except UserError as error:
        return replace(found, failed=str(error))
    return replace(found, value=sizes[cell.reading.metric], seeds=1)


@lru_cache(maxsize=8)
def _federation_sizes(experiment: Experiment, execution: Execution) -> dict[str, float]:
    """Returns the numbers of clients and classes, and means over clients of classes, training and test samples."""
    federation = prepare(experiment, execution.engine_choice(), execution.data_dir).federation
    train, test = federation.class_counts("train"), federation.class_counts("test")
    return {
        "clients": float(federation.population),
        "classes": float(federation.n_classes),
        "local_classes": float(((train + test) > 0).sum(1).mean()),
        "train": float(train.sum(1).mean()),
        "test": float(test.sum(1).mean()),
    }
