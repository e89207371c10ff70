"""What a command prints: the engine that was chosen, a table of runs, where they lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from idiolect.cli.terminal import Terminal, print_table
from idiolect.engines import place
from idiolect.records import Run
from idiolect.reports import notes_of, plain_rows, summarise

__all__ = ["console_of_output", "show", "watcher"]


def watcher(where: dict[str, Any], runs: int) -> Terminal:
    """The watcher, after one line that says which engine was chosen and why."""
    asked = ("engine", "device", "workers", "ray_address", "gpus_per_worker")
    chosen = place(**{name: where[name] for name in asked if name in where})
    terminal = Terminal(Console(stderr=True), runs)
    if terminal.console.is_terminal:
        terminal.say(str(chosen))
    return terminal


def show(runs: list[Run], folder: Path, as_json: bool) -> None:
    summary = summarise(runs)
    if as_json:
        lines = json.loads(summary.to_json(orient="records"))
        print(json.dumps({"folder": str(folder), "methods": lines, "notes": notes_of(runs)}, indent=2))
        return
    console = console_of_output()
    print_table(console, plain_rows(summary))
    for note in notes_of(runs):
        console.print(f"- {note}", highlight=False, markup=False)
    where = f"Table, pictures and records: {folder}"
    console.print(where, highlight=False, markup=False, soft_wrap=True)


def console_of_output() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=160)
