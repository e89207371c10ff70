"""What commands print: a progress bar while runs go on, tables, and where the results lie."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from idiolect.experiments import Execution
from idiolect.records import Run
from idiolect.reports import notes_of, plain_rows, summarise

__all__ = ["Terminal", "console_of_output", "print_line", "print_runs", "print_table", "watched"]

SHOWN = {"loss": "{:.3f}", "global": "{:.1%}", "personal": "{:.1%}"}


class RateColumn(ProgressColumn):
    """Rounds per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("- rounds/s" if speed is None else f"{speed:.2f} rounds/s", style="cyan")


class Terminal:
    """A watcher that draws a progress bar on standard error, where that is a terminal.

    Args:
        runs: how many runs follow each other.
    """

    def __init__(self, console: Console, runs: int = 1) -> None:
        self.console = console
        self._runs, self._started = runs, 0
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def begin(self, label: str, rounds: int, done: int) -> None:
        self._started += 1
        title = f"{label} ({self._started}/{self._runs})" if self._runs > 1 else label
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            RateColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task(title, total=rounds, completed=done, numbers="")
        self._progress.start()

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        if self._progress is None or self._task is None:
            return
        text = " ".join(f"{name} {SHOWN[name].format(value)}" for name, value in numbers.items())
        self._progress.update(self._task, completed=rounds_done, numbers=text)

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = None

    def say(self, sentence: str) -> None:
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def hint(self, sentence: str) -> None:
        if self.console.is_terminal:
            self.say(sentence)


def print_table(console: Console, rows: Sequence[Sequence[str]], title: str = "", words: int = 1) -> None:
    """Prints rows of text, the header first; the first ``words`` columns are words and the others numbers."""
    table = Table(title=title or None, title_justify="left")
    for place, heading in enumerate(rows[0]):
        table.add_column(heading, justify="left" if place < words else "right", overflow="fold")
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)


def print_line(sentence: str) -> None:
    """Prints a sentence on standard output in one line, however long it is."""
    console_of_output().print(sentence, highlight=False, markup=False, soft_wrap=True)


def print_runs(runs: list[Run], folder: Path, as_json: bool) -> None:
    """Prints a table of runs, or a JSON document, and the folder that holds their files."""
    summary = summarise(runs)
    if as_json:
        lines = json.loads(summary.to_json(orient="records"))
        print(json.dumps({"folder": str(folder), "methods": lines, "notes": notes_of(runs)}, indent=2))
        return
    console = console_of_output()
    print_table(console, plain_rows(summary))
    for note in notes_of(runs):
        console.print(f"- {note}", highlight=False, markup=False)
    print_line(f"Table, pictures and records: {folder}")


def console_of_output() -> Console:
    """Returns the console of standard output; a file gets lines of 160 characters."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def watched(execution: Execution, runs: int = 1) -> Execution:
    """Returns the execution with a progress bar, after a line that says which engine was chosen and why."""
    terminal = Terminal(Console(stderr=True), runs)
    terminal.hint(str(execution.engine_choice()))
    return replace(execution, watcher=terminal)
