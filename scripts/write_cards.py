"""Writes docs/methods/*.md and docs/combinations.md from the code as it is now, and measured numbers from the results.

The table of all methods, docs/methods/index.md, has what scripts/measure_costs.py wrote to docs/methods/costs.json.

    python scripts/write_cards.py [FOLDER]

FOLDER is docs unless given; results are those of the folder results.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from idiolect import methods
from idiolect.cli import tried_pairs
from idiolect.reproduction.measured_beside_published import measured_section

RESULTS, DOCS = (Path(__file__).parents[1] / name for name in ("results", "docs"))


def page_with_results(name: str) -> str:
    """Returns the page of a method with what the results say of it."""
    return methods.page(methods.card(name)) + measured_section(name, RESULTS)


def write_index(cards: Path) -> None:
    """Writes the table of all methods, with the costs of rounds that were measured."""
    costs = json.loads((DOCS / "methods" / "costs.json").read_text(encoding="utf-8"))
    (cards / "index.md").write_text(methods.index_page(costs), encoding="utf-8")


def main(folder: Path) -> None:
    cards = folder / "methods"
    cards.mkdir(parents=True, exist_ok=True)
    for old in cards.glob("*.md"):
        old.unlink()
    for name in methods.names():
        (cards / f"{name}.md").write_text(page_with_results(name), encoding="utf-8")
    write_index(cards)
    page = methods.pairs_page(tried_pairs(), list(methods.method_pairs(methods.method)))
    (folder / "combinations.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
