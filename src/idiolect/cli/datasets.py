"""`idiolect datasets`: the datasets, listed or downloaded."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from idiolect import data
from idiolect.cli.app import app
from idiolect.cli.options import DataDir, Json
from idiolect.cli.terminal import console_of_output, print_table

__all__ = ["datasets_command", "datasets_get"]

datasets_app = typer.Typer(invoke_without_command=True, no_args_is_help=False)
app.add_typer(datasets_app, name="datasets", help="List the datasets, or get one.")


@datasets_app.callback()
def datasets_command(context: typer.Context, data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the datasets and where they are looked for."""
    if context.invoked_subcommand is not None:
        return
    found = data.describe(data_dir)
    if as_json:
        print(json.dumps([row._asdict() for row in found], indent=2, default=str))
        return
    rows = [["Name", "Samples", "Classes", "Shape", "Licence", "Status", "Where"]]
    print_table(console_of_output(), rows + [[str(cell) for cell in row] for row in found], words=7)


@datasets_app.command("get")
def datasets_get(
    name: Annotated[str, typer.Argument(help="Name of the dataset.")], data_dir: DataDir = None
) -> None:
    """Download a dataset, check its checksums, and lay it out."""
    console = Console(stderr=True)
    with console.status(f"getting {name}"):
        folder = data.get(name, data_dir)
    print(folder)
