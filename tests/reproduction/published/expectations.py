"""What a paper says of its experiments, in the form in which the package gives it: scenes, tables and figures.

Captions, notes and reasons are prose for readers and are left out; every other field of a scene, table, cell, figure
or line takes part, so that a field without an expectation fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from idiolect.reproduction.papers import FigureNumber, Paper, PaperFigure, PaperTable, TableColumn
from idiolect.reproduction.scenarios import Scenario

Block = Mapping[str, Any]

PROSE = {
    Scenario: {"line", "differs", "warning", "cannot", "reasons"},
    Paper: {"title", "citation"},
    PaperTable: {"caption", "notes"},
    TableColumn: {"label", "note"},
    PaperFigure: {"caption", "notes"},
    FigureNumber: {"what"},
}

# A reading that says nothing, as the words of a reading are explained.
PLAIN = {
    **{"source": "run", "metric": "", "split": "", "population": "", "predictor": "", "moment": ""},
    **{"rounds": "last", "over": "mean", "client": None, "delta": "selection"},
}
# Test accuracy of the shared model on the server's data, and of the selected clients' models after local training.
AGGREGATION = {"metric": "accuracy", "split": "server", "population": "all", "predictor": "global"}
AGGREGATION |= {"moment": "before"}
PERSONALISATION = {"metric": "accuracy", "split": "test", "population": "selected", "moment": "after"}
# Test accuracy of every client's model.
EVERYONE = {"metric": "accuracy", "split": "test", "population": "all"}


def facts(thing: Any) -> Any:
    """A dataclass as a dict without its prose, its dataclasses and tuples likewise."""
    if is_dataclass(thing):
        names = [field.name for field in fields(thing) if field.name not in PROSE.get(type(thing), ())]
        return {name: facts(getattr(thing, name)) for name in names}
    if isinstance(thing, tuple):
        return [facts(each) for each in thing]
    return thing


def over(common: Block, own: Block) -> dict[str, dict[str, Any]]:
    """Options of a scene by method: those of all scenes of the paper, then its own."""
    return {name: {**common.get(name, {}), **own.get(name, {})} for name in {**common, **own}}


def scene(
    common: tuple[Block, Block],
    own: tuple[Block, Block],
    code: Block | None = None,
    clipped: Block | None = None,
    found: Block | None = None,
) -> dict[str, dict[str, tuple[Any, str]]]:
    """Every setting with its origin in every preset.

    Args:
        common, own: what the paper states and what was chosen here, for all its scenes and then for this one.
        code: what the authors' code has instead; ``clipped``: its clipping alone.
        found: what a search chose on top of the authors' code, maybe nothing; None for a scene without a search.
    """
    base: dict[str, tuple[Any, str]] = {}
    for stated, chosen in (common, own):
        base |= {key: (value, "paper") for key, value in stated.items()}
        base |= {key: (value, "inferred") for key, value in chosen.items()}
    presets = {"paper": base}
    for name, changed in (("official", code), ("clipped", clipped)):
        if changed:
            presets[name] = base | {key: (value, name) for key, value in changed.items()}
    if found is not None:
        authors = presets.get("official", base)
        presets["reproduction"] = authors | {key: (value, "reproduction") for key, value in found.items()}
    return presets


def table(
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Mapping[tuple[str, str], Block],
    spread: str = "",
) -> dict[str, Any]:
    return {
        "columns": [{"id": id} for id in columns],
        "rows": [{"label": label} for label in rows],
        "spread": spread,
        "cells": dict(cells),
    }


def cell(
    scenarios: Sequence[str],
    method: str,
    reading: Block,
    unit: str = "%",
    official_method: str = "",
    options: Block | None = None,
) -> dict[str, Any]:
    known = {"scenarios": list(scenarios), "method": method, "official_method": official_method, "unit": unit}
    return known | {"options": dict(options or {}), "reading": PLAIN | dict(reading)}


def line(
    label: str, scenarios: Sequence[str], method: str, reading: Block, settings: Block | None = None
) -> dict[str, Any]:
    known = {"label": label, "scenarios": list(scenarios), "method": method}
    return known | {"reading": PLAIN | dict(reading), "settings": dict(settings or {})}


def figure(
    kind: str,
    scenarios: Sequence[str] = (),
    lines: Sequence[Block] = (),
    numbers: Sequence[Block] = (),
    **more: Any,
) -> dict[str, Any]:
    """``more``: varied ``options`` and ``settings``, ``compared`` lines, ``tables``, ``column`` and ``mark``."""
    known = {"kind": kind, "scenarios": list(scenarios), "lines": list(lines), "numbers": list(numbers)}
    rest = {"options": {}, "settings": {}, "compared": [], "tables": [], "column": "", "mark": None}
    assert more.keys() <= rest.keys()
    return known | rest | more


def number(value: float, scenario: str = "", line: str = "") -> dict[str, Any]:
    return {"value": value, "scenario": scenario, "line": line}
