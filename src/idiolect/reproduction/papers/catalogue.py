"""Tables and figures by id."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from idiolect.errors import unknown_name
from idiolect.reproduction.papers.figure import Figure
from idiolect.reproduction.papers.read_figures import read_figures
from idiolect.reproduction.papers.read_tables import read_paper, read_tables
from idiolect.reproduction.papers.table import Paper, Table

__all__ = ["PAPERS", "figure", "figures", "papers", "table", "tables"]

PAPERS = ("fedper", "fedphp", "map", "persfl", "superfed")


@cache
def papers() -> dict[str, Paper]:
    return {name: read_paper(_text(name)) for name in PAPERS}


@cache
def _all_tables() -> dict[str, Table]:
    return {found.id: found for name in PAPERS for found in read_tables(_text(name))}


@cache
def _all_figures() -> dict[str, Figure]:
    return {found.id: found for name in PAPERS for found in read_figures(_text(name))}


def tables() -> tuple[Table, ...]:
    """Every table, paper by paper."""
    return tuple(_all_tables().values())


def table(id: str) -> Table:
    """
    >>> table("map-table2").cell("MAP", "fa-lenet").value
    91.8
    """
    if id not in _all_tables():
        raise unknown_name("table", id, _all_tables())
    return _all_tables()[id]


def figures() -> tuple[Figure, ...]:
    """Every figure, paper by paper."""
    return tuple(_all_figures().values())


def figure(id: str) -> Figure:
    if id not in _all_figures():
        raise unknown_name("figure", id, _all_figures())
    return _all_figures()[id]


def _text(name: str) -> str:
    return (files("idiolect.reproduction.papers") / f"{name}.toml").read_text("utf-8")
