"""What a reproduction looks like in a terminal and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from idiolect.cli.terminal import print_table
from idiolect.reproduction.compared_number import ComparedNumber
from idiolect.reproduction.reproduce import Reproduction
from idiolect.reproduction.reproduction_result import ABSENT, number_text

__all__ = ["as_json", "print_reproduction"]


def print_reproduction(console: Console, done: Reproduction) -> None:
    """Measured beside the paper's number, cell by cell; a quick one shows no number of the paper."""
    if done.numbers:
        header = ["Row", "Column", "Measured", "95 %"]
        rows = [header if done.quick else [*header, "Paper", "Difference", "Within"]]
        rows += [_cells(one, done.quick) for one in done.numbers]
        print_table(console, rows, title=f"{done.id} (quick)" if done.quick else done.id, words=2)
    for note in (done.caption, *done.notes):
        console.print(f"- {note}", highlight=False, markup=False, soft_wrap=True)
    if done.folder:
        console.print(f"Tables: {done.folder}", highlight=False, markup=False, soft_wrap=True)


def as_json(done: Reproduction) -> dict[str, Any]:
    return {
        "id": done.id,
        "caption": done.caption,
        "quick": done.quick,
        "folder": str(done.folder) if done.folder else None,
        "notes": list(done.notes),
        "cells": [{**vars(one), "difference": one.difference, "within": one.within} for one in done.numbers],
    }


def _cells(one: ComparedNumber, quick: bool) -> list[str]:
    low, high = one.interval or (None, None)
    interval = ABSENT if low is None else f"{number_text(low, one.unit)} .. {number_text(high, one.unit)}"
    measured = number_text(one.value, one.unit)
    if one.spread is not None:
        measured += f" ± {number_text(one.spread, one.unit)}"
    if one.rule:
        measured += f" {one.rule}"
    if one.value is None:
        measured = "refused" if one.failed else "not run"
    cells = [one.row, one.column, measured, interval]
    if quick:
        return cells
    paper = number_text(one.paper, one.unit)
    if one.paper_spread is not None:
        paper += f" ± {number_text(one.paper_spread, one.unit)}"
    within = {None: ABSENT, True: "yes", False: "no"}[one.within]
    difference = ABSENT if one.difference is None else f"{one.difference:+.4g}"
    return [*cells, paper, difference, within]
