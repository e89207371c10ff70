"""`idiolect sweep`: many settings of methods, the best chosen on validation data."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from idiolect.cli.app import app
from idiolect.cli.config_file import ConfigOptions, save_config
from idiolect.cli.options import (
    Changes,
    Json,
    OwnDataOptions,
    ScenarioChoice,
    SceneOptions,
    SeedRange,
    with_option_groups,
)
from idiolect.cli.settings import all_settings, methods_in, settings_alone, settings_of, start_from
from idiolect.cli.terminal import console_of_output, print_line, print_table, watched
from idiolect.experiments import Execution, Experiment
from idiolect.experiments.parameter_grids import grids
from idiolect.experiments.sweep import best_rows, sweep, trial_rows

__all__ = ["sweep_command"]


@dataclass(frozen=True)
class TrialOptions:
    """Which settings of which methods are tried."""

    methods_: Annotated[
        str | None, typer.Option("--methods", "--method", help="Methods separated by commas.")
    ] = None
    vary: Annotated[
        list[str] | None,
        typer.Option(help="What to vary: learning_rate=0.01,0.03 or map.alpha=0.1..0.9; may be repeated."),
    ] = None
    preset_grid: Annotated[
        str | None, typer.Option(help=f"Settings that a paper's authors tried: {', '.join(grids())}.")
    ] = None
    random: Annotated[
        int, typer.Option(help="Number of random trials of each method; 0 tries all combinations.", min=0)
    ] = 0


@app.command("sweep")
@with_option_groups
def sweep_command(
    *,
    trials: TrialOptions,
    choice: ScenarioChoice,
    scene: SceneOptions,
    own: OwnDataOptions,
    seeds: SeedRange,
    changes: Changes,
    files: ConfigOptions,
    execution: Execution,
    as_json: Json = False,
) -> None:
    """Try many settings of methods and scene; the best of each method is chosen on validation data."""
    chosen = settings_of(changes, scene, own)
    base, execution = start_from(choice, chosen, watched(execution))
    names = methods_in(trials.methods_)
    if files.save_config is not None:
        top = {**asdict(choice), "methods": names or None, **asdict(seeds)}
        top["model_file"] = scene.model_file
        settings = settings_alone(chosen) if base else all_settings(Experiment(), chosen)
        axes = {"vary": trials.vary, "preset_grid": trials.preset_grid, "random": trials.random}
        save_config(files.save_config, "sweep", top, settings, execution, own, axes)
    done = sweep(
        names,
        vary=trials.vary or [],
        preset_grid=trials.preset_grid,
        draws=trials.random,
        seeds=seeds.all,
        experiment=base,
        execution=execution,
        **chosen,
    )
    if as_json:
        tried = [_plain({**vars(one), "metric": one.metric.name}) for one in done.tried]
        print(json.dumps({"folder": str(done.folder), "tried": tried}, indent=2))
    else:
        print_table(console_of_output(), trial_rows(done.tried), title="All settings", words=2)
        print_table(console_of_output(), best_rows(done.tried), title="Best on validation data", words=2)
        print_line(f"Tables: {done.folder}")
    if any(one.name not in done.best for one in done.tried):
        sys.exit(2)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values with None for NaN, which JSON does not know."""
    return {key: None if value != value else value for key, value in values.items()}
