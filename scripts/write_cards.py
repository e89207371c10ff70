"""Writes docs/methods/*.md and docs/combinations.md from the code as it is now, and measured numbers from the results.

    python scripts/write_cards.py [FOLDER]

FOLDER is docs unless given; results are those of the folder results.
"""

from __future__ import annotations

import sys
from pathlib import Path

from idiolect import methods
from idiolect.cli import tried_pairs
from idiolect.reproduction.measured_beside_published import measured_section

RESULTS = Path(__file__).parents[1] / "results"


def page_with_results(name: str) -> str:
    """Returns the page of a method with what the results say of it."""
    return methods.page(methods.card(name)) + measured_section(name, RESULTS)


def main(folder: Path) -> None:
    cards = folder / "methods"
    cards.mkdir(parents=True, exist_ok=True)
    for old in cards.glob("*.md"):
        old.unlink()
    for name in methods.names():
        (cards / f"{name}.md").write_text(page_with_results(name), encoding="utf-8")
    page = methods.pairs_page(tried_pairs(), list(methods.method_pairs(methods.method)))
    (folder / "combinations.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
