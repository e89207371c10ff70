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
    completing,
    with_option_groups,
)
from idiolect.cli.settings import all_settings, methods_in, settings_alone, settings_of, start_from
from idiolect.cli.terminal import console_of_output, print_line, print_table, watched
from idiolect.experiments import Execution, Experiment
from idiolect.experiments.sweep.optuna_search import EARLY_STOPS, SEARCHES
from idiolect.experiments.sweep.parameter_grids import grids
from idiolect.experiments.sweep.sweep import Sweep, best_rows, sweep, trial_rows
from idiolect.experiments.sweep.tables import budget_note

__all__ = ["sweep_command"]


@dataclass(frozen=True)
class TrialOptions:
    """Which settings of which methods are tried."""

    methods_: Annotated[
        str | None, typer.Option("--methods", "--method", help="Methods separated by commas.")
    ] = None
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="What to vary: learning_rate=0.01,0.03, map.alpha=0.1..0.9 or learning_rate=0.001..0.3:log; may be "
            "repeated. A random or bayes search without it varies the learning rate."
        ),
    ] = None
    preset_grid: Annotated[
        str | None, typer.Option(help=f"Settings that a paper's authors tried: {', '.join(grids())}.")
    ] = None
    random: Annotated[
        int, typer.Option(help="The same as --search random --trials N.", min=0, metavar="N")
    ] = 0
    search: Annotated[
        str | None,
        typer.Option(
            help="grid tries all combinations, random draws, bayes learns from earlier trials (extra tune).",
            autocompletion=completing(lambda: SEARCHES),
        ),
    ] = None
    trials: Annotated[int, typer.Option(help="Trials of each method, random or bayes.", min=0)] = 0
    budget: Annotated[
        int, typer.Option(help="Rounds of each method, those of all its trials together.", min=0)
    ] = 0
    early_stop: Annotated[
        str,
        typer.Option(
            help="median or halving stops trials that fall behind on validation data (extra tune); none does not.",
            autocompletion=completing(lambda: EARLY_STOPS),
        ),
    ] = "none"


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
    """Try many settings of methods and scene, as many of each method; the best are chosen on validation data."""
    chosen = settings_of(changes, scene, own)
    base, execution = start_from(choice, chosen, watched(execution))
    names = methods_in(trials.methods_)
    if files.save_config is not None:
        top = {**asdict(choice), "methods": names or None, **asdict(seeds), "model_file": scene.model_file}
        settings = settings_alone(chosen) if base else all_settings(Experiment(), chosen)
        axes = {key: value for key, value in asdict(trials).items() if key != "methods_"}
        save_config(files.save_config, "sweep", top, settings, execution, own, axes)
    done = sweep(
        names,
        vary=trials.vary or [],
        preset_grid=trials.preset_grid,
        draws=trials.random,
        search=trials.search,
        trials=trials.trials,
        budget=trials.budget,
        early_stop=trials.early_stop,
        seeds=seeds.all,
        experiment=base,
        execution=execution,
        **chosen,
    )
    _print_sweep(done, as_json)
    if any(one.name not in done.best for one in done.tried):
        sys.exit(2)


def _print_sweep(done: Sweep, as_json: bool) -> None:
    """Prints all trials, the best and the budget: as tables, or as one JSON document."""
    if as_json:
        tried = [_plain({**vars(one), "metric": one.metric.name}) for one in done.tried]
        found = {"folder": str(done.folder), "budget": budget_note(done.tried), "tried": tried}
        print(json.dumps(found, indent=2))
        return
    print_table(console_of_output(), trial_rows(done.tried), title="All settings", words=2)
    print_table(console_of_output(), best_rows(done.tried), title="Best on validation data", words=2)
    print_line(budget_note(done.tried))
    print_line(f"Tables: {done.folder}")
    if len(done.best) == len({one.name for one in done.tried}):
        print_line(f"Compare the best: idiolect compare --from-sweep {done.folder}")


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values with None for NaN, which JSON does not know."""
    return {key: None if value != value else value for key, value in values.items()}
