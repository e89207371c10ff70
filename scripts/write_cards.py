"""Writes docs/methods/*.md and docs/combinations.md from the code as it is now.

    python scripts/write_cards.py [FOLDER]

FOLDER is docs unless given.
"""

from __future__ import annotations

import sys
from pathlib import Path

from idiolect import methods
from idiolect.cli import tried_pairs


def main(folder: Path) -> None:
    cards = folder / "methods"
    cards.mkdir(parents=True, exist_ok=True)
    for old in cards.glob("*.md"):
        old.unlink()
    for name in methods.names():
        (cards / f"{name}.md").write_text(methods.page(methods.card(name)), encoding="utf-8")
    page = methods.pairs_page(tried_pairs(), list(methods.method_pairs(methods.method)))
    (folder / "combinations.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
