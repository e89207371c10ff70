"""Writes the results of ``idiolect bench --json`` into docs/measurements.md, one table for each document.

python benchmarks/peers.py --json > cpu.json
python scripts/write_performance.py cpu.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from idiolect.bench import Report, notes_of, rows_of_table
from idiolect.bench.roofline import Peaks
from idiolect.version import __version__

PAGE = Path(__file__).parent.parent / "docs" / "measurements.md"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def read(path: Path) -> Report:
    document = json.loads(path.read_text())
    peaks = {precision: Peaks(**found) for precision, found in document["peaks"].items()}
    return Report(document["machine"], peaks, document["rows"])


def section(report: Report) -> str:
    """Returns a Markdown table and its notes."""
    head, *rows = rows_of_table(report)
    lines = [head, [":---" if place < 3 else "---:" for place in range(len(head))], *rows]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    notes = "\n".join(f"- {note}" for note in notes_of(report))
    return f"{report.machine['date']}, version {__version__}:\n\n{table}\n\n{notes}"


def main(paths: list[str]) -> None:
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    sections = "\n\n".join(section(read(Path(path))) for path in paths)
    PAGE.write_text(f"{before}{BEGIN}\n{sections}\n{END}{after}")


if __name__ == "__main__":
    main(sys.argv[1:])
