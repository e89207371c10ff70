"""What results say of methods and of whole tables, as Markdown: for the cards of methods, and for the first page.

Everything is read from records; where there are none, there is no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from idiolect.errors import UserError
from idiolect.experiments.execution import Execution
from idiolect.reports import to_markdown
from idiolect.reproduction.campaigns import campaigns, run_named_campaign
from idiolect.reproduction.compared_number import ComparedNumber
from idiolect.reproduction.papers import PaperTable, table, tables
from idiolect.reproduction.recorded import RecordedUse, recorded_numbers
from idiolect.reproduction.reproduction_result import Reproduction, number_text
from idiolect.reproduction.request import ReproductionRequest
from idiolect.reproduction.results import Results
from idiolect.reproduction.tables import FROM_RUNS, choice_notes

__all__ = ["between_marks", "front_table", "measured_section", "recorded_tables", "searches"]

BEGIN, END = "<!-- measured beside published -->", "<!-- end of measured beside published -->"


class RunCell(NamedTuple):
    """A cell that was run: its method, the preset and number format that it ran under, and its number."""

    method: str
    use: str
    number: ComparedNumber


@cache
def recorded_tables(folder: Path) -> dict[str, list[RunCell]]:
    """Returns by table every cell that was run; empty where there are no results."""
    try:
        results = Results.open(folder)
    except UserError:
        return {}
    found = {}
    for one in tables():
        cells = _run_cells(one, results)
        if cells:
            found[one.id] = cells
    return found


def _run_cells(table: PaperTable, results: Results) -> list[RunCell]:
    run = replace(table, cells=tuple(cell for cell in table.cells if cell.reading.source in FROM_RUNS))
    numbers, uses = recorded_numbers(run, RecordedUse(results), ReproductionRequest(), Execution())
    methods = {(cell.row, cell.column): cell.method for cell in run.cells}
    shown = [one for one in numbers if one.value is not None or one.diverged]
    return [
        RunCell((one.ran_as or methods[one.row, one.column]).partition("(")[0], uses[one.column], one)
        for one in shown
    ]


def measured_section(method: str, folder: Path) -> str:
    """Returns the section of a method's card: measured beside published, cell by cell, and what was run."""
    rows, notes = [["Table", "Cell", "Run under", "Measured", "Seeds", "Published"]], ""
    for id, cells in recorded_tables(folder).items():
        own = [cell for cell in cells if cell.method == method]
        if own and table(id).choice:
            notes = " One setting was run where the paper prints the best of several."
        rows += [[f"`{id}`", f"{one.row}, {one.column}", use, *_texts(one)] for _, use, one in own]
    if len(rows) == 1:
        return ""
    told = "Measured from the records in `results/`; `idiolect reproduce TABLE --from results` prints the whole table."
    return f"\nMeasured\n--------\n\n{told}{notes}\n\n{to_markdown(rows, 'llllrr')}"


def _texts(one: ComparedNumber) -> list[str]:
    measured = one.text_without_value if one.value is None else number_text(one.value, one.unit)
    if one.interval is not None:
        measured += f" ± {number_text((one.interval[1] - one.interval[0]) / 2, one.unit)}"
    if one.rule and one.value is not None:
        measured += f" {one.rule}"
    return [measured, str(one.seeds), number_text(one.paper, one.unit)]


def front_table(ids: Sequence[str], folder: Path) -> str:
    """Returns tables side by side: a row for each method that ran, the paper's numbers in brackets; maybe nothing."""
    cells = [(id, cell) for id in ids for cell in recorded_tables(folder).get(id, [])]
    if not cells:
        return ""
    columns = list(dict.fromkeys((id, cell.number.column) for id, cell in cells))
    shown = list(dict.fromkeys(id for id, _ in columns))
    rows = [["Method", *(column if len(shown) == 1 else f"{id}, {column}" for id, column in columns)]]
    for row in dict.fromkeys(cell.number.row for _, cell in cells):
        own = {(id, cell.number.column): cell.number for id, cell in cells if cell.number.row == row}
        rows.append([row, *(_cell(own[key]) if key in own else "not run" for key in columns)])
    seeds = sorted({cell.number.seeds for _, cell in cells})
    counted = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    about = [f"`{id}`: {table(id).caption}." for id in shown]
    units = {cell.number.unit for _, cell in cells}
    unit = " in %" if units == {"%"} else ""
    ran = f"{counted} seed{'s' if seeds[-1] > 1 else ''}; {_uses([cell for _, cell in cells])}."
    choices = [note for id in shown for note in choice_notes(table(id), ReproductionRequest())]
    notes = [f"{note[0].upper()}{note[1:]}." for note in dict.fromkeys(choices)]
    measured = f"{', '.join(f'`{id}`' for id in shown)} measured{unit}, the paper's number in brackets; {ran}"
    caption = " ".join([measured, *about, *notes])
    return f"{caption}\n\n{to_markdown(rows, 'l' + 'r' * len(columns))}"


def _uses(cells: Sequence[RunCell]) -> str:
    """Returns what the columns ran under: once if that is the same for all, otherwise with their names."""
    columns: dict[str, list[str]] = {}
    for cell in cells:
        named = columns.setdefault(cell.use, [])
        if cell.number.column not in named:
            named.append(cell.number.column)
    if len(columns) == 1:
        return next(iter(columns))
    return "; ".join(f"{', '.join(named)}: {use}" for use, named in columns.items())


def searches(folder: Path) -> str:
    """Returns every search and every named pair of the campaigns of which there are results; maybe nothing."""
    if not recorded_tables(folder):
        return ""
    found = []
    for name, campaign in campaigns().items():
        if campaign.pairs or any(part.variants for part in campaign.parts):
            with TemporaryDirectory() as out:
                shown = run_named_campaign(name, Execution(out=out), folder)
                texts = [
                    (Path(out) / done.id / f"{done.id}.md").read_text("utf-8")
                    for done in shown
                    if _is_search(done)
                ]
            found += texts
    return "\n".join(found)


def _is_search(done: Reproduction) -> bool:
    return done.id.endswith(("-search", "-pairs")) and any(
        one.value is not None or one.diverged for one in done.numbers
    )


def _cell(one: ComparedNumber) -> str:
    measured, _, paper = _texts(one)
    return f"{measured} ({paper})"


def between_marks(text: str, content: str) -> str:
    """Returns a document with new content between its marks; a document without marks stays as it is.

    Raises:
        ValueError: the mark at the end is missing.
    """
    if BEGIN not in text:
        return text
    before, _, rest = text.partition(BEGIN)
    if END not in rest:
        raise ValueError(f"the document has {BEGIN} without {END} after it")
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{content}{END}{after}"
