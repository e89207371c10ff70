"""`idiolect reproduce`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from idiolect.cli import reproduction_pages
from idiolect.cli.app import app
from idiolect.cli.options import DataDir, Device, Engine, Json, Out, Preset
from idiolect.cli.output import console_of_output, watcher
from idiolect.cli.settings import names_in
from idiolect.reproduction.reproduce import reproduce

__all__ = ["reproduce_command"]


@app.command("reproduce")
def reproduce_command(
    id: Annotated[str, typer.Argument(help="A table or figure, such as map-table2 or fedphp-fig4.")],
    column: Annotated[
        str | None, typer.Option(help="Columns of the table, or scenarios of the figure, by commas.")
    ] = None,
    methods_: Annotated[str | None, typer.Option("--methods", help="Methods separated by commas.")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="How many seeds; unless given, as many runs as the paper averages: 5 of PersFL, 1 of the others.",
            min=1,
        ),
    ] = None,
    preset: Preset = "paper",
    best_of_grid: Annotated[
        bool,
        typer.Option(
            "--best-of-grid",
            help="Run all settings of MAP's authors and take each scene's best; MAP's tables and map-fig9.",
        ),
    ] = False,
    delta: Annotated[
        str,
        typer.Option(
            help="Of fedphp-fig6: a download against the client's next selection, or the next round (equation 4)."
        ),
    ] = "selection",
    quick: Annotated[
        bool, typer.Option("--quick", help="Embedded data and few rounds; never compared with the paper.")
    ] = False,
    formats: Annotated[
        str, typer.Option("--format", help="Of a figure's picture, by commas: png, svg, pdf.")
    ] = "png",
    engine: Engine = "auto",
    device: Device = "auto",
    data_dir: DataDir = None,
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Make a paper's table or figure: run what is missing, go on after a stop, show it beside the paper's."""
    where: dict[str, Any] = {"engine": engine, "device": device}
    done = reproduce(
        id,
        columns=names_in(column),
        methods=names_in(methods_),
        seeds=seeds,
        preset=preset,
        best_of_grid=best_of_grid,
        delta=delta,
        quick=quick,
        formats=names_in(formats),
        out=out,
        data_dir=data_dir,
        watcher=watcher(where, 1),
        **where,
    )
    if as_json:
        print(json.dumps(reproduction_pages.as_json(done), indent=2))
    else:
        reproduction_pages.print_reproduction(console_of_output(), done)
    if done.failures or (done.numbers and all(one.value is None for one in done.numbers)):
        sys.exit(2)
