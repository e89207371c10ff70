"""Every two parts together: which work, which are refused, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from idiolect.errors import UserError
from idiolect.methods.catalogue import PARTS

__all__ = ["Pair", "pairs", "pairs_page"]

SMALLER = {
    "ensemble_distillation": "ensemble_distillation(steps=2)",
    "optimal_teacher": "optimal_teacher(lambdas=(0.0, 0.5), temperatures=(1.0,), epochs=1)",
}  # what would take minutes otherwise


class Pair(NamedTuple):
    first: str
    second: str
    method: str  # the pair as it is written
    refused: str  # why, or nothing


def pairs(attempt: Callable[[str], object]) -> Iterator[Pair]:
    """Every two parts of the package with their default options, the one that updates the server first.

    Args:
        attempt: makes a method from its text and tries it, raising ``UserError`` for what cannot work.
    """
    leading = [name for name, make in PARTS.items() if "server update" in make().roles]
    ordered = leading + [name for name in PARTS if name not in leading]
    for first, second in combinations(ordered, 2):
        text = f"{SMALLER.get(first, first)} + {SMALLER.get(second, second)}"
        try:
            attempt(text)
        except UserError as error:
            yield Pair(first, second, text, str(error))
        else:
            yield Pair(first, second, text, "")


def pairs_page(found: list[Pair]) -> str:
    """The matrix as a Markdown page: who goes with whom, then the reasons."""
    names = list(dict.fromkeys(name for pair in found for name in (pair.first, pair.second)))
    refused = {frozenset((pair.first, pair.second)) for pair in found if pair.refused}

    def mark(row: str, column: str) -> str:
        return "" if row == column else "no" if frozenset((row, column)) in refused else "ok"

    table = [["", *(str(number + 1) for number in range(len(names)))], ["---"] * (len(names) + 1)]
    for number, row in enumerate(names):
        table.append([f"{number + 1} {row}", *(mark(row, column) for column in names)])
    lines = ["| " + " | ".join(row) + " |" for row in table]
    reasons = [f"- {pair.first}, {pair.second}: {pair.refused}" for pair in found if pair.refused]
    return (
        "Combinations of two parts\n=========================\n\n"
        "Every two parts with their default options, `average` beneath those that leave the server alone:\n"
        "ok runs, no is refused before any training.  Columns are numbered like the rows.\n"
        "`idiolect methods --pairs` tries them all.\n\n"
        f"{len(found) - len(refused)} of {len(found)} pairs work.\n\n"
        + "\n".join(lines)
        + "\n\nRefused\n-------\n\n"
        + "\n".join(reasons)
        + "\n"
    )
