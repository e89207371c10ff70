"""`idiolect report`: one HTML page of finished runs, with pictures and tables beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer.core import TyperCommand

from idiolect.cli.app import app
from idiolect.cli.options import Json
from idiolect.cli.settings import names_in
from idiolect.records import Run
from idiolect.reports import gather, refuse_unknown_formats, refuse_unknown_style, write_page, write_report
from idiolect.statistics import as_reading

__all__ = ["report_command"]

Formats = Annotated[
    str,
    typer.Option("--format", help="Files beside the page, separated by commas: png, svg, pdf, md, csv, tex."),
]
Style = Annotated[
    str | None,
    typer.Option("--style", help="Fonts and sizes of the pictures for a paper: neurips, icml, ieee, acm."),
]
Width = Annotated[str, typer.Option("--width", help="Width of the pictures with --style: column, full.")]
ReadingText = Annotated[
    str,
    typer.Option(
        "--reading",
        help="Final values of every method: last (evaluation), mean(5) of the last five, or validated (the round "
        "that is best on validation data).",
    ),
]


@app.command("report", cls=TyperCommand)
def report_command(
    runs: Annotated[list[Path], typer.Argument(help="Runs, or folders that hold runs.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path("report"),
    formats: Formats = "",
    style: Style = None,
    width: Width = "column",
    reading: ReadingText = "last",
    as_json: Json = False,
) -> None:
    """Make one page of finished runs that opens offline; with --format, pictures and tables beside it."""
    passed_over: list[str] = []
    console = Console(stderr=True, soft_wrap=True)

    def say(sentence: str) -> None:
        passed_over.append(sentence)
        console.print(f"idiolect: {sentence}", style="yellow", highlight=False, markup=False)

    wanted = tuple(names_in(formats))
    refuse_unknown_formats(wanted)
    refuse_unknown_style(style, width, wanted)
    read = as_reading(reading)
    found = gather(runs, say)
    page = write_page(found, out / "report.html", passed_over, read)
    beside: list[Path] = []
    if wanted:
        beside = write_report(found, out, wanted, special=True, style=style, width=width, reading=read)
    if as_json:
        _print_json([page, *beside], found, passed_over)
    else:
        print(page)


def _print_json(files: Sequence[Path], runs: Sequence[Run], passed_over: Sequence[str]) -> None:
    """Prints the files of a report, the runs in it, and why others are not, as one document."""
    found = {"files": [str(path) for path in files], "runs": [run.manifest["name"] for run in runs]}
    print(json.dumps({**found, "passed_over": list(passed_over)}, indent=2))
