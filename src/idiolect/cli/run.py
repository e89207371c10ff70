"""`idiolect run` and `idiolect compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from idiolect import methods
from idiolect.cli.app import app
from idiolect.cli.options import (
    Clients,
    DataDir,
    Dataset,
    Device,
    Engine,
    GpusPerWorker,
    Json,
    Log,
    Model,
    Out,
    Partition,
    Precision,
    Preset,
    Quick,
    RayAddress,
    Resume,
    Rounds,
    ScenarioName,
    Set,
    Store,
    StoreCache,
    Workers,
)
from idiolect.cli.output import show, watcher
from idiolect.cli.scenario import of_scenario
from idiolect.cli.settings import names_in, settings_of
from idiolect.experiments import Comparison, compare, run
from idiolect.experiments.demo import DEMO_METHODS
from idiolect.reports import write_report
from idiolect.reproduction.papers import papers
from idiolect.reproduction.scenarios import find_scenario, scenario_uses

__all__ = ["compare_command", "run_command"]


@app.command("run")
def run_command(
    method: Annotated[str | None, typer.Option(help="A method, with options: 'map(alpha=0.5)'.")] = None,
    scenario: ScenarioName = None,
    preset: Preset = "paper",
    dataset: Dataset = None,
    partition: Partition = None,
    clients: Clients = None,
    model: Model = None,
    rounds: Rounds = None,
    precision: Precision = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random draw.")] = None,
    settings: Set = None,
    quick: Quick = False,
    engine: Engine = "auto",
    device: Device = "auto",
    workers: Workers = None,
    ray_address: RayAddress = None,
    gpus_per_worker: GpusPerWorker = 0.0,
    data_dir: DataDir = None,
    out: Out = Path("runs"),
    resume: Resume = False,
    store: Store = "auto",
    store_cache: StoreCache = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Run one method; without --method, a small comparison of nine on the data inside the package."""
    chosen = settings_of(
        quick,
        settings,
        dataset=dataset,
        partition=partition,
        clients=clients,
        model=model,
        rounds=rounds,
        precision=precision,
        seed=seed,
    )
    where = {"engine": engine, "device": device, "data_dir": data_dir, "out": out, "resume": resume}
    where |= {"workers": workers, "ray_address": ray_address, "gpus_per_worker": gpus_per_worker}
    where |= {"store": store, "store_cache": store_cache, "log": log or []}
    if method is None and scenario is None:
        first = chosen.pop("seed", 0)
        carry_out(list(DEMO_METHODS), [first], chosen, where, as_json)
        return
    terminal, base, notes = watcher(where, 1), None, []
    if scenario is not None:
        base_of, notes = of_scenario(scenario, preset, chosen, data_dir, terminal)
        base = base_of(method or papers()[find_scenario(scenario).paper].method)
    done = run(base or method or "", watcher=terminal, notes=notes, **where, **chosen)
    folder = Path(out) / done.manifest["name"]
    write_report([done], folder)
    show([done], folder, as_json)


@app.command("compare")
def compare_command(
    methods_: Annotated[
        str | None,
        typer.Option(
            "--methods", help="Methods separated by commas, or all; else those of the scenario, or all."
        ),
    ] = None,
    scenario: ScenarioName = None,
    preset: Preset = "paper",
    dataset: Dataset = None,
    partition: Partition = None,
    clients: Clients = None,
    model: Model = None,
    rounds: Rounds = None,
    precision: Precision = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 1,
    settings: Set = None,
    quick: Quick = False,
    engine: Engine = "auto",
    device: Device = "auto",
    workers: Workers = None,
    ray_address: RayAddress = None,
    gpus_per_worker: GpusPerWorker = 0.0,
    data_dir: DataDir = None,
    out: Out = Path("runs"),
    resume: Resume = False,
    store: Store = "auto",
    store_cache: StoreCache = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Run several methods on the same clients, splits and batches; write a table and pictures."""
    chosen = settings_of(
        quick,
        settings,
        dataset=dataset,
        partition=partition,
        clients=clients,
        model=model,
        rounds=rounds,
        precision=precision,
    )
    where = {"engine": engine, "device": device, "data_dir": data_dir, "out": out, "resume": resume}
    where |= {"workers": workers, "ray_address": ray_address, "gpus_per_worker": gpus_per_worker}
    where |= {"store": store, "store_cache": store_cache, "log": log or []}
    names = names_in(methods_ or "all")
    if methods_ is None and scenario is not None:
        names = list(scenario_uses(find_scenario(scenario).name).methods)
    names = methods.names() if names == ["all"] else names
    carry_out(names, list(range(seed, seed + seeds)), chosen, where, as_json, scenario, preset)


def carry_out(
    names: list[str],
    seeds: list[int],
    settings: dict[str, Any],
    where: dict[str, Any],
    as_json: bool,
    scenario: str | None = None,
    preset: str = "paper",
) -> None:
    terminal = watcher(where, len(names) * len(seeds))
    extra: dict[str, Any] = {}
    if scenario is not None:
        base_of, notes = of_scenario(scenario, preset, settings, where["data_dir"], terminal)
        extra = {"experiment": base_of, "notes": notes}
    done: Comparison = compare(names, seeds=seeds, watcher=terminal, **extra, **where, **settings)
    show(done.runs, done.folder, as_json)
