"""`idiolect collect`: finished runs of scenarios become results that a repository can hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from idiolect.cli.app import app
from idiolect.cli.options import Json
from idiolect.cli.terminal import print_line
from idiolect.reproduction.results import LARGEST, collect

__all__ = ["collect_command"]


@app.command("collect")
def collect_command(
    runs: Annotated[list[Path], typer.Argument(help="Runs, or folders that hold runs.")],
    into: Annotated[Path, typer.Option("--into", help="Folder of results.")] = Path("results"),
    command: Annotated[
        str, typer.Option(help="The command that made the runs, which their manifests then hold.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Copy what tables and figures need of finished runs of scenarios into a folder small enough to commit."""
    console = Console(stderr=True, soft_wrap=True)

    def say(sentence: str) -> None:
        console.print(f"idiolect: {sentence}", style="yellow", highlight=False, markup=False)

    done = collect(runs, into, say, command)
    if done.bytes > LARGEST:
        say(f"{into} has {done.bytes / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f}; do not commit all of it")
    if as_json:
        print(json.dumps(done._asdict(), indent=2))
        return
    print_line(
        f"{len(done.added)} runs added, {done.known} known already; {into} has {done.bytes / 1e6:.2f} MB in all"
    )
