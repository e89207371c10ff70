"""What commands print: the engine that was chosen, tables, and where the results lie."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from idiolect.cli.config_file import configured
from idiolect.cli.options import RUN_OPTIONS
from idiolect.experiments import Execution
from idiolect.experiments.tracking import open_log
from idiolect.records import Run
from idiolect.reports import (
    NO_SECONDS,
    best_first,
    by_scene,
    certainty_of,
    disturbance_cells,
    disturbances_data,
    disturbances_note,
    judged_by,
    lacks_seconds,
    marks_of,
    notes_of,
    plain_rows,
    summarise,
)

__all__ = ["console_of_output", "print_line", "print_runs", "print_table", "print_trackers", "watched"]


def print_table(console: Console, rows: Sequence[Sequence[str]], title: str = "", words: int = 1) -> None:
    """Prints rows of text, the header first; the first ``words`` columns are words and the others numbers."""
    table = Table(title=title or None, title_justify="left")
    for place, heading in enumerate(rows[0]):
        table.add_column(heading, justify="left" if place < words else "right", overflow="fold")
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    console.print(table)


def print_line(sentence: str) -> None:
    """Prints a sentence on standard output in one line, however long it is."""
    console_of_output().print(sentence, highlight=False, markup=False, soft_wrap=True)


def print_runs(runs: Sequence[Run], folder: Path, as_json: bool) -> None:
    """Prints a table of runs, or a JSON document, and the folder that holds their files."""
    runs = best_first(runs)
    summary, notes = summarise(runs), [*notes_of(runs), *certainty_of(runs)]
    notes += [NO_SECONDS] * lacks_seconds(summary)
    disturbed, metric = disturbances_data(runs), judged_by(runs)
    if as_json:
        tables = {"methods": summary, "disturbances": disturbed}
        found = {name: json.loads(table.to_json(orient="records")) for name, table in tables.items()}
        print(json.dumps({"folder": str(folder), **found, "notes": notes}, indent=2))
        return
    console = console_of_output()
    for title, scene in by_scene(summary):
        print_table(console, plain_rows(scene, metric), title)
    for (title, under), here in disturbed.groupby(["scene", "under"], sort=False):
        print_table(console, disturbance_cells(here, metric), f"{title}: under {under}")
    legend = [*marks_of(summary, bold=False), *([disturbances_note(disturbed)] if len(disturbed) else [])]
    for note in [*legend, *notes]:
        console.print(f"- {note}", highlight=False, markup=False)
    print_line(f"Table, pictures and records: {folder}")


def print_trackers(execution: Execution, out: str | Path, as_json: bool) -> None:
    """Prints how to look at what the trackers of runs in ``out`` have; nothing beside a JSON document."""
    for sentence in [] if as_json else open_log(execution.log, out).look:
        print_line(sentence)


def console_of_output() -> Console:
    """Returns the console of standard output; a file gets lines of 160 characters."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def watched(execution: Execution) -> Execution:
    """Returns the execution with what a config says beyond options; hints which engine was chosen and why."""
    beyond = {key: value for key, value in configured().execution.items() if key not in RUN_OPTIONS}
    execution = replace(execution, **beyond)
    execution.watcher.hint(str(execution.engine_choice()))
    return execution
