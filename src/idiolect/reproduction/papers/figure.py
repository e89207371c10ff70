"""A figure of a paper: what is run for it and what is read off the runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from idiolect.reproduction.papers.reading import Reading

__all__ = ["KINDS", "Figure", "Line", "Number"]

KINDS = {
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
class Line:
    """Args:
    settings: of the scenario, on top of its own, for this line alone.
    """

    label: str
    scenarios: tuple[str, ...]
    method: str
    reading: Reading
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Number:
    """A number of the figure that the paper's text or the figure itself prints."""

    what: str
    value: float
    scenario: str = ""
    line: str = ""


@dataclass(frozen=True)
class Figure:
    """Args:
    kind: one of ``KINDS``.
    options, settings: values of method options and scene settings that every line is run with, all
        combinations of them.
    compared: of the kind ``grid``: the other methods, of which the best stands beside each of the lines.
    tables, column: of the kind ``table``.
    mark: share of the rounds at which the picture has an upright line.
    """

    id: str
    paper: str
    kind: str
    caption: str
    notes: tuple[str, ...]
    scenarios: tuple[str, ...]
    lines: tuple[Line, ...]
    options: dict[str, list[Any]]
    settings: dict[str, list[Any]]
    numbers: tuple[Number, ...]
    compared: tuple[Line, ...] = ()
    tables: tuple[str, ...] = ()
    column: str = ""
    mark: float | None = None
