"""Writes what the folder results holds into README.md, which shows one table, and into docs/reproduction.md.

    python scripts/write_results.py

Both have a place for it between two marks, which stays empty while there are no results.
"""

from __future__ import annotations

from pathlib import Path

from idiolect.reproduction.measured_beside_published import (
    between_marks,
    front_table,
    recorded_tables,
    searches,
)

ROOT = Path(__file__).parents[1]
FRONT = (("map-table1", "map-table2"), ("persfl-table2",), ("superfed-table1",))  # the first with results


def texts(root: Path = ROOT) -> dict[Path, str]:
    """Returns the two documents as they should be."""
    results = root / "results"
    found = recorded_tables(results)
    front = next(filter(None, (front_table(ids, results) for ids in FRONT)), "")
    if front:
        front += (
            "\n[Reproduction](docs/reproduction.md) has all that was run, and what is known of the rest.\n"
        )
    texts = [*(front_table([id], results) for id in found), *filter(None, [searches(results)])]
    every = "".join(f"{text}\n" for text in texts)  # an empty line ends a table
    content = {"README.md": front, "docs/reproduction.md": every}
    return {
        root / name: between_marks((root / name).read_text("utf-8"), text) for name, text in content.items()
    }


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
