"""A table of a paper: columns and rows say what a cell is, the cell what the paper prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from idiolect.reproduction.papers.reading import Reading

__all__ = ["Cell", "Column", "Paper", "Row", "Table"]


@dataclass(frozen=True)
class Paper:
    """Args:
    method: the paper's own.
    seeds: runs that the paper averages; 1 where it says nothing of several.
    """

    id: str
    title: str
    citation: str
    method: str
    seeds: int = 1


@dataclass(frozen=True)
class Column:
    id: str
    label: str
    note: str = ""


@dataclass(frozen=True)
class Row:
    label: str


@dataclass(frozen=True)
class Cell:
    """Args:
    value, spread: as printed; None where the paper prints none.
    scenarios: the number is the mean over them.
    method: as in ``idiolect methods``, with what the table fixes; empty where no method is meant.
    official_method: what the authors' code ran under this name, where that is another method.
    options: of the method, on top of what the scenario sets.
    unit: ``%`` or empty.
    """

    table: str
    row: str
    column: str
    value: float | None
    spread: float | None
    scenarios: tuple[str, ...]
    method: str
    official_method: str
    options: dict[str, Any]
    reading: Reading
    unit: str


@dataclass(frozen=True)
class Table:
    """Args:
    spread: what the paper's ± is the SD over: ``settings`` of a method, ``clients``, or empty for none.
    notes: what a reader of the numbers should know.
    """

    id: str
    paper: str
    caption: str
    spread: str
    notes: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    cells: tuple[Cell, ...]

    def cell(self, row: str, column: str) -> Cell:
        return next(cell for cell in self.cells if (cell.row, cell.column) == (row, column))
