"""A whole table, or some of its columns and methods."""

from __future__ import annotations

from collections.abc import Sequence

from idiolect.experiments.campaign import run_campaign
from idiolect.experiments.execution import Execution
from idiolect.experiments.progress import Watcher
from idiolect.reproduction.cells import cell_entry, cell_tasks
from idiolect.reproduction.entry import Entry
from idiolect.reproduction.facts import fact_entry
from idiolect.reproduction.papers import Cell, Table
from idiolect.reproduction.plan import Ask
from idiolect.reproduction.result import Reproduction, refuse_unknown, written

__all__ = ["table_entries", "whole_table"]


def whole_table(
    found: Table, ask: Ask, where: Execution, watcher: Watcher, columns: Sequence[str], methods: Sequence[str]
) -> Reproduction:
    entries = table_entries(found, ask, where, watcher, columns, methods)
    return written(found.id, found.caption, entries, found.notes, ask, where)


def table_entries(
    found: Table, ask: Ask, where: Execution, watcher: Watcher, columns: Sequence[str], methods: Sequence[str]
) -> list[Entry]:
    cells = _chosen(found, columns, methods)
    run = [cell for cell in cells if cell.reading.source in ("run", "choice")]
    outcomes = run_campaign([task for cell in run for task in cell_tasks(cell, ask)], where)
    doubts = {column.id: column.note for column in found.columns}
    return [
        cell_entry(cell, ask, outcomes, doubts[cell.column])
        if cell.reading.source in ("run", "choice")
        else fact_entry(cell, ask, where)
        for cell in cells
    ]


def _chosen(found: Table, columns: Sequence[str], methods: Sequence[str]) -> list[Cell]:
    """Cells that were asked for and in which the paper prints a number."""
    names = {cell.method.partition("(")[0] for cell in found.cells}
    refuse_unknown("column", columns, [column.id for column in found.columns])
    refuse_unknown("method", methods, names)
    return [
        cell
        for cell in found.cells
        if cell.value is not None
        and (not columns or cell.column in columns)
        and (not methods or cell.method.partition("(")[0] in methods)
    ]
