"""The tables and figures of a paper as values: what each one shows, what has to be run for it, and what is printed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from idiolect.reproduction.papers.metric_reading import MetricReading

__all__ = [
    "FIGURE_KINDS",
    "FigureLine",
    "FigureNumber",
    "Paper",
    "PaperFigure",
    "PaperTable",
    "TableCell",
    "TableColumn",
    "TableRow",
]

FIGURE_KINDS = {
    "schematic": "a drawing without data",
    "unknown": "nothing is known of it",
    "features": "two-dimensional features and the rows of the head, of networks trained on some classes",
    "proxies": "norms, gradients and distances of the rows of the head by epoch",
    "subsets": "networks trained on some classes and on all, scored on those",
    "curves": "a number by round",
    "spread": "mean and SD over clients by round",
    "zigzag": "each selected client before and after local training, by round",
    "degradation": "downloaded model less last personalised one, by round",
    "grid": "one number for every pair of values of two options",
    "settings": "one number for every combination of options, aggregation against personalisation",
    "clients": "a number for every client",
    "users": "a number for every client by two options",
    "change": "what every client gains from one line to the next",
    "profile": "mean and SD over clients by mixing coefficient",
    "table": "a column of several tables against each other",
}


@dataclass(frozen=True)
class Paper:
    """A paper.

    Args:
        method: the method that the paper proposes.
        seeds: runs that the paper averages; 1 where the paper does not mention several.
    """

    id: str
    title: str
    citation: str
    method: str
    seeds: int = 1


@dataclass(frozen=True)
class TableColumn:
    """A column of a table; `note` states a doubt about the paper's numbers in it."""

    id: str
    label: str
    note: str = ""


@dataclass(frozen=True)
class TableRow:
    """A row of a table."""

    label: str


@dataclass(frozen=True)
class TableCell:
    """A cell of a table: the printed number, and which runs and which of their results give it.

    Args:
        value, spread: as printed; None where the paper prints none.
        scenarios: the number is the mean over them.
        method: as in ``idiolect methods``, with the options that the table fixes; empty where no method is meant.
        official_method: what the authors' code ran under this name, where that is another method.
        options: options of the method, on top of those of the scenario.
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
    reading: MetricReading
    unit: str


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Args:
        choice: what the paper's numbers are chosen from, where it ran several settings; a reproduction may run one.
        spread: what the paper's ± is the SD over: ``settings`` of a method, ``clients``, or empty for none.
        notes: what a reader of the numbers should know.
    """

    id: str
    paper: str
    caption: str
    choice: str
    spread: str
    notes: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    cells: tuple[TableCell, ...]

    def cell(self, row: str, column: str) -> TableCell:
        """Returns the cell of a row's label and a column's id."""
        return next(cell for cell in self.cells if (cell.row, cell.column) == (row, column))


@dataclass(frozen=True)
class FigureLine:
    """A line of a figure: a method in one or several scenarios, and what is read from its runs.

    Args:
        settings: settings of the experiment, on top of the scenario's, for this line alone.
    """

    label: str
    scenarios: tuple[str, ...]
    method: str
    reading: MetricReading
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FigureNumber:
    """A number of a figure that the figure itself or the paper's text prints."""

    what: str
    value: float
    scenario: str = ""
    line: str = ""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper.

    Args:
        kind: one of ``FIGURE_KINDS``.
        options, settings: values of method options and experiment settings; every line is run with all their
            combinations.
        compared: for the kind ``grid``: the other methods, of which the best stands beside each of the lines.
        tables, column: for the kind ``table``.
        mark: fraction of the rounds at which the picture has a vertical line.
    """

    id: str
    paper: str
    kind: str
    caption: str
    notes: tuple[str, ...]
    scenarios: tuple[str, ...]
    lines: tuple[FigureLine, ...]
    options: dict[str, list[Any]]
    settings: dict[str, list[Any]]
    numbers: tuple[FigureNumber, ...]
    compared: tuple[FigureLine, ...] = ()
    tables: tuple[str, ...] = ()
    column: str = ""
    mark: float | None = None
