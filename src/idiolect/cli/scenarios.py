"""`idiolect scenarios`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from idiolect.cli import scenario_pages
from idiolect.cli.app import app
from idiolect.cli.options import DataDir, Json, Preset
from idiolect.cli.output import console_of_output
from idiolect.reproduction.scenarios import find_scenario

__all__ = ["scenarios_command"]


@app.command("scenarios")
def scenarios_command(
    name: Annotated[str | None, typer.Argument(help="A scenario to explain.")] = None,
    preset: Preset = "paper",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """List the papers' experiments, or explain one: every setting and where it comes from."""
    if as_json:
        found: Any = scenario_pages.listing(data_dir)
        if name:
            found = scenario_pages.as_json(find_scenario(name), preset, data_dir)
        print(json.dumps(found, indent=2, default=str))
    elif name:
        scenario_pages.print_page(console_of_output(), find_scenario(name), preset, data_dir)
    else:
        scenario_pages.print_listing(console_of_output(), data_dir)
