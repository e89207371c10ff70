"""`idiolect sweep`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from idiolect.cli.app import app
from idiolect.cli.options import (
    Clients,
    DataDir,
    Dataset,
    Device,
    Engine,
    Json,
    Model,
    Out,
    Partition,
    Preset,
    Quick,
    Rounds,
    ScenarioName,
    Set,
)
from idiolect.cli.output import console_of_output, watcher
from idiolect.cli.scenario import of_scenario
from idiolect.cli.settings import names_in, settings_of
from idiolect.cli.terminal import print_table
from idiolect.experiments.parameter_grids import grids
from idiolect.experiments.sweep import best_rows, sweep, trial_rows

__all__ = ["sweep_command"]


@app.command("sweep")
def sweep_command(
    methods_: Annotated[
        str | None, typer.Option("--methods", "--method", help="Methods separated by commas.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="learning_rate=0.01,0.03 or map.alpha=0.5,0.9; a range is 0.1..0.9; may be repeated."
        ),
    ] = None,
    preset_grid: Annotated[
        str | None, typer.Option(help=f"Settings that a paper's authors tried: {', '.join(grids())}.")
    ] = None,
    random: Annotated[int, typer.Option(help="Draw this many trials of each method.", min=0)] = 0,
    scenario: ScenarioName = None,
    preset: Preset = "paper",
    dataset: Dataset = None,
    partition: Partition = None,
    clients: Clients = None,
    model: Model = None,
    rounds: Rounds = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 1,
    settings: Set = None,
    quick: Quick = False,
    engine: Engine = "auto",
    device: Device = "auto",
    data_dir: DataDir = None,
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Try many settings of methods and scene; the best of each method is chosen on validation data."""
    flags = {"dataset": dataset, "partition": partition, "clients": clients, "model": model, "rounds": rounds}
    chosen = settings_of(quick, settings, **flags)
    where: dict[str, Any] = {"engine": engine, "device": device, "data_dir": data_dir, "out": out}
    terminal, extra = watcher(where, 1), {}
    if scenario is not None:
        base_of, notes = of_scenario(scenario, preset, chosen, data_dir, terminal)
        extra = {"experiment": base_of, "notes": notes}
    done = sweep(
        names_in(methods_),
        vary=vary or [],
        preset_grid=preset_grid,
        draws=random,
        seeds=range(seed, seed + seeds),
        watcher=terminal,
        **extra,
        **where,
        **chosen,
    )
    if as_json:
        print(
            json.dumps(
                {"folder": str(done.folder), "tried": [_plain(vars(one)) for one in done.tried]}, indent=2
            )
        )
    else:
        print_table(console_of_output(), trial_rows(done.tried), title="All settings", words=2)
        print_table(console_of_output(), best_rows(done.tried), title="Best on validation data", words=2)
        console_of_output().print(f"Tables: {done.folder}", highlight=False, markup=False, soft_wrap=True)
    if any(one.name not in done.best for one in done.tried):
        sys.exit(2)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no NaN; what was not measured is null."""
    return {key: None if value != value else value for key, value in values.items()}
