"""What the five papers report: every table and figure as a value, read from the TOML files beside this one."""

from idiolect.reproduction.papers.catalogue import figure, figures, papers, table, tables
from idiolect.reproduction.papers.metric_reading import MetricReading
from idiolect.reproduction.papers.paper_tables_and_figures import (
    FIGURE_KINDS,
    FigureLine,
    FigureNumber,
    Paper,
    PaperFigure,
    PaperTable,
    TableCell,
    TableColumn,
    TableRow,
)

__all__ = [
    "FIGURE_KINDS",
    "FigureLine",
    "FigureNumber",
    "MetricReading",
    "Paper",
    "PaperFigure",
    "PaperTable",
    "TableCell",
    "TableColumn",
    "TableRow",
    "figure",
    "figures",
    "papers",
    "table",
    "tables",
]
