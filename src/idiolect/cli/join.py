"""`idiolect join`: new clients get models of their own from a finished run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.app import app
from idiolect.cli.export import RUN_HELP, Formats
from idiolect.cli.options import Device, Json, NewClientsOptions, with_option_groups
from idiolect.cli.settings import names_in
from idiolect.cli.terminal import console_of_output, print_line, print_table
from idiolect.errors import UserError
from idiolect.experiments import join

__all__ = ["join_command"]


@app.command("join")
@with_option_groups
def join_command(
    *,
    run: Annotated[Path, typer.Argument(help=RUN_HELP)],
    own: NewClientsOptions,
    steps: Annotated[int | None, typer.Option(help="Local steps of each new client.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Local epochs of each new client.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the new models; by default one beside the run.")
    ] = None,
    formats: Formats = "program,weights",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Let new clients join a finished run by its method's rule; the run stays as it was."""
    given = own.keywords()
    if "data" not in given:
        raise UserError("give the rows of the new clients: --data PATH")
    found = join(
        run,
        given.pop("data"),
        steps=steps,
        epochs=epochs,
        out=out,
        device=device,
        formats=names_in(formats),
        **given,
    )
    table = found.table()
    if as_json:
        lines = json.loads(table.to_json(orient="records"))
        print(json.dumps({"folder": str(found.folder), "run": found.run.name, "clients": lines}, indent=2))
        return
    rows = [[_shown(value) for value in line] for line in table.itertuples(index=False)]
    print_table(console_of_output(), [list(table.columns), *rows])
    print_line(f"Models and record: {found.folder}")


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
