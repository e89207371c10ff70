"""What the five papers report: every table and figure as data, read from the TOML files beside this one."""

from idiolect.reproduction.papers.catalogue import figure, figures, papers, table, tables
from idiolect.reproduction.papers.figure import Figure, Line, Number
from idiolect.reproduction.papers.reading import Reading
from idiolect.reproduction.papers.table import Cell, Column, Paper, Row, Table

__all__ = [
    "Cell",
    "Column",
    "Figure",
    "Line",
    "Number",
    "Paper",
    "Reading",
    "Row",
    "Table",
    "figure",
    "figures",
    "papers",
    "table",
    "tables",
]
