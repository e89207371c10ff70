"""The result of a reproduction: its numbers beside the paper's, its notes, and its Markdown, CSV and LaTeX files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from idiolect.records import write_atomically
from idiolect.reports import to_csv, to_latex, to_markdown, without_html
from idiolect.reproduction.compared_number import ComparedNumber
from idiolect.reproduction.quick_experiment import QUICK_NOTE
from idiolect.reproduction.request import ReproductionRequest

__all__ = ["ABSENT", "Reproduction", "number_text", "write_files", "write_reproduction"]

ABSENT = "-"
NOT_MEASURED = ("not run", "refused")  # the notes that begin so say why
CSV_COLUMNS = (
    *("row", "column", "value", "low", "high", "seeds", "spread", "paper", "paper_spread"),
    *("difference", "within", "unit", "ran_as", "rule", "missing", "failed", "quick"),
    *("diverged", "where", "lost"),
)
DIVERGED = (
    "diverged: the numbers of a run were no longer finite; a row with such a seed has no mean, and of several settings "
    "a finite one wins"
)


@dataclass(frozen=True)
class Reproduction:
    """A finished reproduction of a table or figure.

    Args:
        numbers: every number, beside the paper's.
        notes: what a reader of the numbers should know.
        folder: holds the files; None where there was nothing to run.
        recorded: the numbers were read from results, whose cells may have different numbers of seeds.
    """

    id: str
    caption: str
    quick: bool
    numbers: tuple[ComparedNumber, ...]
    notes: tuple[str, ...]
    folder: Path | None
    recorded: bool = False

    @property
    def failures(self) -> list[str]:
        """The reasons of refusals, each once."""
        return list(dict.fromkeys(one.failed for one in self.numbers if one.failed))


def write_reproduction(
    id: str,
    caption: str,
    numbers: Sequence[ComparedNumber],
    notes: Sequence[str],
    request: ReproductionRequest,
    out: str | Path,
) -> tuple[Reproduction, Path]:
    """Writes the tables to ``<out>/<id>``, or ``<out>/<id>-quick``; returns the reproduction and that folder."""
    all_notes = _notes(numbers, notes, request)
    folder = Path(out) / (f"{id}-quick" if request.quick else id)
    done = Reproduction(
        id, caption, request.quick, tuple(numbers), tuple(all_notes), folder, request.results is not None
    )
    write_files(folder, done)
    return done, folder


def _notes(
    numbers: Sequence[ComparedNumber], given: Sequence[str], request: ReproductionRequest
) -> list[str]:
    """Returns the notes under a table: what the numbers are, the given notes, doubts, and what was not run and why."""
    several = len(request.seeds) > 1
    found = [QUICK_NOTE] if request.quick else ["measured, and the paper's number in brackets"]
    if request.results is None:
        found.append(f"preset {request.preset}, {len(request.seeds)} seed{'s' if several else ''}")
    else:
        found.append(f"read from the records in {request.results.folder}, nothing was trained")
        found.append("[n]: number of seeds")
        several = any(one.interval for one in numbers)
    if request.precision is not None:
        found.append(f"all runs compute in {request.precision}")
    if several:
        found.append("±: half the 95 % t interval of the mean over seeds")
    if request.grid:
        found.append("every number is the best of the authors' settings, chosen on test data as in the paper")
        found.append("a mean over several scenes is the mean of each scene's own best")
    found += given
    doubts = dict.fromkeys((one.column, one.note) for one in numbers if one.note and not request.quick)
    found += [f"{column}: {note}" for column, note in doubts]
    for word, field in zip(NOT_MEASURED, ("missing", "failed"), strict=True):
        reasons: dict[str, list[str]] = {}
        for one in numbers:
            if getattr(one, field):
                reasons.setdefault(getattr(one, field), []).append(f"{one.row} / {one.column}")
        found += [f"{word} ({_listed(cells)}): {reason}" for reason, cells in reasons.items()]
    for where, cells in _divergences(numbers).items():
        found.append(f"diverged ({_listed(cells)}): {where}")
    if any(one.diverged or one.lost for one in numbers):
        found.append(DIVERGED)
    lost = [f"{one.row} / {one.column} ({one.lost})" for one in numbers if one.lost]
    return [*found, f"settings of the grid that diverged: {', '.join(lost)}"] if lost else found


def _divergences(numbers: Sequence[ComparedNumber]) -> dict[str, list[str]]:
    """Returns the cells that diverged, by where they did."""
    found: dict[str, list[str]] = {}
    for one in numbers:
        if one.diverged:
            found.setdefault(one.where, []).append(f"{one.row} / {one.column}")
    return found


def _listed(cells: list[str]) -> str:
    return ", ".join(cells) if len(cells) <= 4 else f"{', '.join(cells[:3])} and {len(cells) - 3} more"


def write_files(folder: Path, done: Reproduction) -> None:
    """Writes ``<id>.md``, ``<id>.csv`` and ``<id>.tex``, each atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = _matrix(done)
    title = f"{done.id}: {done.caption}"
    if done.quick:
        title = f"{done.id} (quick stand-in on embedded data). The paper shows: {done.caption}"
    texts = {
        "md": without_html(_markdown(rows, title, done.notes)),
        "csv": _csv(done.numbers, done.quick),
        "tex": _latex(rows, title, done),
    }
    for ending, text in texts.items():
        write_atomically(folder / f"{done.id}.{ending}", text)


def number_text(value: float | None, unit: str = "") -> str:
    """Returns a percentage with two decimals and any other number with four significant digits."""
    if value is None:
        return ABSENT
    return f"{value:.2f}" if unit == "%" else f"{value:.4g}"


def _matrix(done: Reproduction) -> list[list[str]]:
    """Returns rows against columns, the header first: measured, and the paper's number in brackets."""
    numbers = done.numbers
    columns = list(dict.fromkeys(one.column for one in numbers))
    cells = {(one.row, one.column): _cell(one, done) for one in numbers}
    rows = dict.fromkeys(one.row for one in numbers)
    return [["", *columns], *([row, *(cells.get((row, column), "") for column in columns)] for row in rows)]


def _cell(one: ComparedNumber, done: Reproduction) -> str:
    text = one.text_without_value if one.value is None else number_text(one.value, one.unit)
    if one.interval is not None:
        text += f" ± {number_text((one.interval[1] - one.interval[0]) / 2, one.unit)}"
    text += f" {one.rule}" if one.rule and one.value is not None else ""
    text += f" [{one.seeds}]" if done.recorded and one.value is not None else ""
    return text if done.quick or one.paper is None else f"{text} ({number_text(one.paper, one.unit)})"


def _markdown(rows: list[list[str]], title: str, notes: Sequence[str]) -> str:
    listed = "".join(f"- {note}\n" for note in notes)
    return f"**{title}**\n\n{to_markdown(rows)}\n{listed}"


def _latex(rows: list[list[str]], title: str, done: Reproduction) -> str:
    """Returns the table with what its reader should know; why this machine did not run something is no part of it."""
    notes = [note for note in done.notes if not note.startswith((*NOT_MEASURED, "diverged ("))]
    caption = " ".join(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in notes)
    return to_latex(rows, booktabs=False, caption=f"{title}. {caption}")


def _csv(numbers: Sequence[ComparedNumber], quick: bool) -> str:
    rows: list[tuple[object, ...]] = [CSV_COLUMNS]
    for one in numbers:
        low, high = one.interval or (None, None)
        values = {**vars(one), "low": low, "high": high, "quick": quick}
        values |= {"difference": one.difference, "within": one.within}
        rows.append(tuple(values[name] for name in CSV_COLUMNS))
    return to_csv(rows)
