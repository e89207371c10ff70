"""Where the papers use a scenario: its tables, its figures, and the methods they show there."""

from __future__ import annotations

from typing import NamedTuple

from idiolect.reproduction.papers import figures, tables

__all__ = ["Uses", "uses"]


class Uses(NamedTuple):
    tables: tuple[str, ...]
    figures: tuple[str, ...]
    methods: tuple[str, ...]


def uses(scenario: str) -> Uses:
    """
    >>> uses("map-dir-fa-lenet").tables
    ('map-table3',)
    """
    cells = [cell for table in tables() for cell in table.cells if scenario in cell.scenarios]
    shown = [figure for figure in figures() if scenario in figure.scenarios]
    lines = [line for figure in shown for line in figure.lines if scenario in line.scenarios]
    methods = [cell.method for cell in cells if cell.method] + [line.method for line in lines]
    return Uses(
        tuple(dict.fromkeys(cell.table for cell in cells)),
        tuple(figure.id for figure in shown),
        tuple(dict.fromkeys(methods)),
    )
