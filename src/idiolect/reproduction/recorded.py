"""Prints a table or figure from recorded results: nothing is trained, and every column says under which preset it ran.

A column is read under one preset and one number format for all its methods; a cell is never chosen by its value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from idiolect.experiments.execution import Execution
from idiolect.experiments.spec import PRECISIONS
from idiolect.reproduction import papers
from idiolect.reproduction.compared_number import ComparedNumber
from idiolect.reproduction.papers import PaperFigure, PaperTable
from idiolect.reproduction.reproduction_result import Reproduction, write_reproduction
from idiolect.reproduction.request import ReproductionRequest
from idiolect.reproduction.results import Results, Use
from idiolect.reproduction.scenarios import find_scenario
from idiolect.reproduction.tables import choice_notes, refuse_unknown_cells, table_numbers

__all__ = ["RecordedUse", "recorded_numbers", "recorded_request", "recorded_table", "scenarios_of"]

PRESETS = ("reproduction", "official", "clipped", "paper")  # the first of which there is any run


class RecordedUse(NamedTuple):
    """What is asked of results: a preset, a number format and seeds; None leaves the choice to what was recorded."""

    results: Results
    preset: str | None = None
    precision: str | None = None
    seeds: tuple[int, ...] | None = None


def recorded_request(
    asked: RecordedUse, scenarios: Iterable[str], request: ReproductionRequest
) -> ReproductionRequest:
    """Returns the request that reads the results of some scenarios; where there are none, it is for the
    preset paper.
    """
    uses, scenarios = asked.results.uses(), list(scenarios)
    presets = PRESETS if asked.preset is None else (asked.preset,)
    formats = PRECISIONS if asked.precision is None else (asked.precision,)
    for preset in presets:
        if not all(preset in find_scenario(name).presets for name in scenarios):
            continue
        for precision in formats:
            seeds: set[int] = set()
            for scenario in scenarios:
                seeds |= uses.get(Use(scenario, preset, precision), set())
            if seeds:
                return replace(
                    request,
                    results=asked.results,
                    preset=preset,
                    precision=None if precision == "float32" else precision,
                    seeds=asked.seeds or tuple(sorted(seeds)),
                )
    return replace(request, results=asked.results, preset=asked.preset or "paper", seeds=asked.seeds or (0,))


def recorded_numbers(
    table: PaperTable, asked: RecordedUse, request: ReproductionRequest, execution: Execution
) -> tuple[list[ComparedNumber], dict[str, str]]:
    """Returns the numbers of a table, and the preset and number format of each column that was run."""
    refuse_unknown_cells(table, request)
    wanted = [column.id for column in table.columns if not request.columns or column.id in request.columns]
    found: list[ComparedNumber] = []
    read = {}
    for column in wanted:
        scenarios = {name for cell in table.cells if cell.column == column for name in cell.scenarios}
        own = recorded_request(asked, sorted(scenarios), replace(request, columns=(column,)))
        numbers = table_numbers(table, own, execution)
        if any(one.value is not None or one.diverged for one in numbers):
            read[column] = f"preset {own.preset}, {own.precision or 'float32'}"
        found += numbers
    order = list(dict.fromkeys(cell.row for cell in table.cells))
    return sorted(found, key=lambda one: order.index(one.row)), read


def recorded_table(
    table: PaperTable, asked: RecordedUse, request: ReproductionRequest, execution: Execution
) -> Reproduction:
    """Writes a table of recorded numbers."""
    numbers, read = recorded_numbers(table, asked, request, execution)
    notes = [
        *(f"{column}: {use}" for column, use in read.items()),
        *table.notes,
        *choice_notes(table, request),
    ]
    request = replace(request, results=asked.results, precision=None)
    return write_reproduction(table.id, table.caption, numbers, notes, request, execution.out)[0]


def scenarios_of(figure: PaperFigure) -> list[str]:
    """Returns the scenarios of a figure, or those of the column that it takes from tables."""
    if figure.kind != "table":
        return list(figure.scenarios)
    cells = [cell for id in figure.tables for cell in papers.table(id).cells if cell.column == figure.column]
    return list(dict.fromkeys(name for cell in cells for name in cell.scenarios))
