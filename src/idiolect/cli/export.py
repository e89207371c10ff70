"""`idiolect export`: models of a finished run as files that work without Idiolect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.app import app
from idiolect.cli.options import DataDir, Json
from idiolect.cli.settings import names_in
from idiolect.cli.terminal import print_line
from idiolect.errors import UserError
from idiolect.experiments import open_run
from idiolect.experiments.finished.exported_models import ExportedModel

__all__ = ["RUN_HELP", "Formats", "export_command", "print_exported"]

RUN_HELP = "Folder of a finished run; a comparison's folder holds one for each method."
Formats = Annotated[
    str, typer.Option("--format", help="Formats separated by commas: program, weights, onnx.")
]


@app.command("export")
def export_command(
    run: Annotated[Path, typer.Argument(help=RUN_HELP)],
    client: Annotated[str | None, typer.Option(help="A client, by number or name.")] = None,
    everyone: Annotated[bool, typer.Option("--all", help="The models of all clients.")] = False,
    shared: Annotated[bool, typer.Option("--global", help="The shared model of the server.")] = False,
    predictor: Annotated[
        str | None, typer.Option(help="A predictor of the method; by default the one in its tables.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the models; by default one beside the run.")
    ] = None,
    formats: Formats = "program,weights",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Write models of a finished run: programs for PyTorch alone, weights, and what they are."""
    if (client is not None) + everyone + shared != 1:
        raise UserError("say which models to export: --client NUMBER or NAME, --all, or --global")
    finished = open_run(run, data_dir=data_dir)
    written = finished.export(client, shared=shared, predictor=predictor, out=out, formats=names_in(formats))
    print_exported(written, as_json)


def print_exported(written: list[ExportedModel], as_json: bool) -> None:
    """Prints the files of exported models, and what could not be written."""
    if as_json:
        models = [
            {
                "name": one.name,
                "client": one.client,
                "files": [str(path) for path in one.files],
                "notes": one.notes,
            }
            for one in written
        ]
        print(json.dumps({"models": models}, indent=2))
        return
    for one in written:
        whose = one.name if one.client is None else f"client {one.client}"
        print_line(f"{whose}: {', '.join(path.name for path in one.files)}")
        for note in one.notes:
            print_line(f"- {note}")
    print_line(f"Models: {written[0].files[0].parent}")
