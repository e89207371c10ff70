"""A reproduction as files: Markdown for people, CSV for programs, LaTeX for papers."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from idiolect.records import write_atomically
from idiolect.reproduction.entry import Entry

__all__ = ["ABSENT", "matrix", "number", "write_files"]

ABSENT = "-"
COLUMNS = (
    *("row", "column", "value", "low", "high", "seeds", "spread", "paper", "paper_spread"),
    *("difference", "within", "unit", "ran_as", "rule", "missing", "failed", "quick"),
)
LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "$": r"\$"}


def number(value: float | None, unit: str = "") -> str:
    """Two digits of a percentage, four significant ones of anything else."""
    if value is None:
        return ABSENT
    return f"{value:.2f}" if unit == "%" else f"{value:.4g}"


def matrix(entries: Sequence[Entry], quick: bool) -> list[list[str]]:
    """Rows against columns, the header first; measured, and the paper's number in brackets."""
    columns = list(dict.fromkeys(one.column for one in entries))
    cells = {(one.row, one.column): _cell(one, quick) for one in entries}
    rows = dict.fromkeys(one.row for one in entries)
    return [["", *columns], *([row, *(cells.get((row, column), "") for column in columns)] for row in rows)]


def write_files(
    folder: Path, id: str, entries: Sequence[Entry], caption: str, notes: Sequence[str], quick: bool
) -> list[Path]:
    """Writes ``<id>.md``, ``<id>.csv`` and ``<id>.tex``, each in one piece."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = matrix(entries, quick)
    texts = {
        "md": _markdown(rows, caption, notes),
        "csv": _csv(entries, quick),
        "tex": _latex(rows, caption, notes),
    }
    return [write_atomically(folder / f"{id}.{ending}", text) for ending, text in texts.items()]


def _cell(one: Entry, quick: bool) -> str:
    text = number(one.value, one.unit)
    if one.interval is not None:
        text += f" ± {number((one.interval[1] - one.interval[0]) / 2, one.unit)}"
    text += f" {one.rule}" if one.rule and one.value is not None else ""
    return text if quick or one.paper is None else f"{text} ({number(one.paper, one.unit)})"


def _markdown(rows: list[list[str]], caption: str, notes: Sequence[str]) -> str:
    rule = [":---", *["---:"] * (len(rows[0]) - 1)]
    lines = [
        "| " + " | ".join(text.replace("|", "\\|") for text in row) + " |"
        for row in [rows[0], rule, *rows[1:]]
    ]
    return "\n".join([f"**{caption}**", "", *lines, "", *(f"- {note}" for note in notes)]) + "\n"


def _csv(entries: Sequence[Entry], quick: bool) -> str:
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in entries:
        low, high = one.interval or (None, None)
        writer.writerow(
            [
                *(
                    one.row,
                    one.column,
                    one.value,
                    low,
                    high,
                    one.seeds,
                    one.spread,
                    one.paper,
                    one.paper_spread,
                ),
                *(one.difference, one.within, one.unit, one.ran_as, one.rule, one.missing, one.failed, quick),
            ]
        )
    return target.getvalue()


def _latex(rows: list[list[str]], caption: str, notes: Sequence[str]) -> str:
    def plain(text: str) -> str:
        return "".join(LATEX.get(letter, letter) for letter in text)

    body = [" & ".join(map(plain, row)) + r" \\" for row in rows]
    told = " ".join(f"{plain(note)}." for note in notes)
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{plain(caption)}. {told}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}",
            r"\hline",
            body[0],
            r"\hline",
            *body[1:],
            r"\hline",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )
