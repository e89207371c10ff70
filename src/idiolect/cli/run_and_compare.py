"""`idiolect run` and `idiolect compare`: one method, or several on the same clients."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from click.core import ParameterSource

from idiolect import methods
from idiolect.cli.app import app
from idiolect.cli.config_file import ConfigOptions, save_config
from idiolect.cli.options import (
    Changes,
    Json,
    OwnDataOptions,
    ScenarioChoice,
    SceneOptions,
    Seed,
    SeedRange,
    completing,
    with_option_groups,
)
from idiolect.cli.settings import (
    all_settings,
    methods_for,
    methods_in,
    names_in,
    settings_alone,
    settings_of,
    start_from,
)
from idiolect.cli.terminal import print_line, print_runs, print_trackers, watched
from idiolect.errors import UserError
from idiolect.experiments import Execution, Experiment, compare, run
from idiolect.experiments.sweep.best_settings import read_sweep
from idiolect.methods import shortest
from idiolect.reports import write_page, write_report
from idiolect.reproduction.scenarios import find_scenario, scenario_uses

__all__ = ["compare_command", "run_command"]

DEMO_METHODS = (
    "local",
    "fedavg",
    "fedavg_lu",
    "fedper",
    "fedrs",
    "fedphp",
    "map",
    "persfl(lambdas=(0.0, 0.5), temperatures=(1.0, 5.0), epochs=3)",
    "superfed_mm",
)  # compared by ``idiolect run`` without --method
MethodNames = Annotated[
    str | None,
    typer.Option(
        "--methods",
        help="Methods separated by commas, or all; by default those of the scenario, or all.",
        autocompletion=completing(methods.names),
    ),
]
FromSweep = Annotated[
    Path | None,
    typer.Option(
        "--from-sweep",
        metavar="FOLDER",
        help="Every method of a sweep with its best setting, on seeds after those that tuned it.",
    ),
]


@app.command("run")
@with_option_groups
def run_command(
    *,
    method: Annotated[
        str | None,
        typer.Option(
            help="A method, with options: 'map(alpha=0.5)'.", autocompletion=completing(methods.names)
        ),
    ] = None,
    choice: ScenarioChoice,
    scene: SceneOptions,
    own: OwnDataOptions,
    seed: Seed = None,
    changes: Changes,
    files: ConfigOptions,
    execution: Execution,
    as_json: Json = False,
) -> None:
    """Run one method; without --method, compare nine, on the data inside the package or on your own."""
    if len(names_in(method)) > 1:
        raise UserError(f"--method takes one method, got {method!r}; idiolect compare --methods runs several")
    chosen = settings_of(changes, scene, own, seed=seed)
    if method is None and choice == ScenarioChoice():
        execution, first = watched(execution), chosen.pop("seed", 0)
        names = methods_for(DEMO_METHODS, chosen, execution.watcher.say)
        if files.save_config is not None:
            top = {"methods": names, "seed": first, "model_file": scene.model_file}
            settings = all_settings(Experiment(), chosen)
            save_config(files.save_config, "compare", top, settings, execution, own)
        _compare_with_page(names, first, execution, chosen, as_json)
        return
    base, execution = start_from(choice, chosen, watched(execution))
    if files.save_config is not None:
        whole = base(method) if base else Experiment(method=method or "")
        top = {"method": shortest(whole.method), "seed": chosen.get("seed", whole.seed)}
        top["model_file"] = scene.model_file
        settings = all_settings(whole, chosen, in_scenario=base is not None)
        save_config(files.save_config, "run", top, settings, execution, own)
    done = run(base(method) if base else method or "", execution=execution, **chosen)
    folder = Path(execution.out) / done.manifest["name"]
    write_report([done], folder)
    print_runs([done], folder, as_json)
    print_trackers(execution, execution.out, as_json)


def _compare_with_page(
    names: Sequence[str], seed: int, execution: Execution, chosen: dict[str, Any], as_json: bool
) -> None:
    """Compares methods on one seed, makes the page of their report, and prints both."""
    together = compare(names, seeds=[seed], execution=execution, **chosen)
    page = write_page(together.runs, together.folder / "report.html")
    print_runs(together.runs, together.folder, as_json)
    if not as_json:
        print_line(f"Report: {page}")
    print_trackers(execution, together.folder, as_json)


@app.command("compare")
@with_option_groups
def compare_command(
    *,
    methods_: MethodNames = None,
    from_sweep: FromSweep = None,
    choice: ScenarioChoice,
    scene: SceneOptions,
    beside_clean: Annotated[
        bool, typer.Option("--beside-clean", help="Run every method without the disturbances of --under too.")
    ] = False,
    own: OwnDataOptions,
    seeds: SeedRange,
    changes: Changes,
    files: ConfigOptions,
    execution: Execution,
    as_json: Json = False,
) -> None:
    """Run several methods on the same clients, splits and batches; write a table and pictures."""
    chosen = settings_of(changes, scene, own)
    names = methods_in(methods_) or _methods_of(choice)
    if from_sweep is not None and choice != ScenarioChoice():
        raise UserError("a sweep brings its experiments; leave --scenario out, or --from-sweep")
    base, execution = start_from(choice, chosen, watched(execution))
    names = [] if names == ["all"] else names
    if from_sweep is not None:
        seeds = _after_tuning(seeds, from_sweep)
    elif not names:
        names = methods_for(methods.names(), chosen, execution.watcher.say)
    if files.save_config is not None:
        top = {**asdict(choice), "methods": names or None, **asdict(seeds), "model_file": scene.model_file}
        top["from_sweep"] = str(from_sweep) if from_sweep else None
        alone = base is not None or from_sweep is not None
        settings = settings_alone(chosen) if alone else all_settings(Experiment(), chosen)
        save_config(files.save_config, "compare", top, settings, execution, own)
    asked: dict[str, Any] = {"experiment": base, "from_sweep": from_sweep, "beside_clean": beside_clean}
    done = compare(names, seeds=seeds.all, execution=execution, **asked, **chosen)
    print_runs(done.runs, done.folder, as_json)
    if not as_json:
        print_line(f"Next: idiolect report {shlex.quote(str(done.folder))} makes one page of them")
    print_trackers(execution, done.folder, as_json)


def _methods_of(choice: ScenarioChoice) -> list[str]:
    """Returns the methods of the scenario, if one is chosen."""
    return [] if choice.scenario is None else list(scenario_uses(find_scenario(choice.scenario).name).methods)


def _after_tuning(seeds: SeedRange, sweep: Path) -> SeedRange:
    """Returns as many seeds from the first on that tuned nothing, unless --seed says where they begin."""
    context = click.get_current_context()
    if context.get_parameter_source("seed") is not ParameterSource.DEFAULT:
        return seeds
    return SeedRange(read_sweep(sweep).next_seed, seeds.seeds)
