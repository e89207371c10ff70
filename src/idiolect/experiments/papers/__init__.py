"""What the five papers report: every table and figure as data, read from the TOML files beside this one."""

from idiolect.experiments.papers.catalogue import figure, figures, papers, table, tables
from idiolect.experiments.papers.figure import Figure, Line, Number
from idiolect.experiments.papers.grids import Grid, combinations, grid, grids
from idiolect.experiments.papers.reading import Reading
from idiolect.experiments.papers.table import Cell, Column, Paper, Row, Table

__all__ = [
    "Cell",
    "Column",
    "Figure",
    "Grid",
    "Line",
    "Number",
    "Paper",
    "Reading",
    "Row",
    "Table",
    "combinations",
    "figure",
    "figures",
    "grid",
    "grids",
    "papers",
    "table",
    "tables",
]
