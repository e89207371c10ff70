"""``sweep``: many settings of methods and of the scene; the best is chosen on validation data alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from idiolect.errors import UserError, refuse_outside
from idiolect.experiments.campaign import RunOutcome, RunRequest, Where, run_campaign
from idiolect.experiments.identity import hash_of
from idiolect.experiments.progress import Silent, Watcher
from idiolect.experiments.spec import Experiment, with_settings
from idiolect.experiments.sweeping.axis import parse_axis
from idiolect.experiments.sweeping.files import write_sweep
from idiolect.experiments.sweeping.parameter_grids import grid
from idiolect.experiments.sweeping.result import Tried, with_best
from idiolect.experiments.sweeping.scores import scores
from idiolect.experiments.sweeping.trials import Trial, trials_of
from idiolect.records import spec_hash

__all__ = ["Sweep", "sweep"]


@dataclass(frozen=True)
class Sweep:
    """Args:
    tried: every trial, in order; the best of each method is marked.
    folder: holds the tables.
    """

    tried: tuple[Tried, ...]
    folder: Path

    @property
    def best(self) -> dict[str, Tried]:
        """By method."""
        return {one.name: one for one in self.tried if one.best}


def sweep(
    methods: Sequence[str] = (),
    *,
    vary: Sequence[str] = (),
    preset_grid: str | None = None,
    draws: int = 0,
    seeds: Sequence[int] = (0,),
    experiment: Experiment | Callable[[str], Experiment] | None = None,
    out: str | Path = "runs",
    engine: str = "auto",
    device: str = "auto",
    data_dir: str | Path | None = None,
    watcher: Watcher | None = None,
    notes: Sequence[str] = (),
    **settings: Any,
) -> Sweep:
    """Runs every trial that is not done yet and writes which setting of each method is best on validation data.

    Args:
        methods: names, with options that stay as they are; those of the preset grid unless given.
        vary: axes such as ``map.alpha=0.5,0.9`` or ``learning_rate=0.01..0.1:log``.
        preset_grid: settings that a paper's authors tried, by name: ``map``, ``persfl``, ...
        draws: of each method at random; 0 makes all combinations.
        seeds: every trial runs once for each.
        experiment: what all trials have in common, or a function that gives each method its experiment.
        out: holds the runs, and a folder with the tables.
        settings: fields of ``Experiment``.
    """
    refuse_outside("draws", draws, 0)
    tried = grid(preset_grid).settings(in_scene=callable(experiment)) if preset_grid else {}
    methods = list(methods) or list(tried)
    if not methods or not seeds or not (vary or tried):
        raise UserError("a sweep needs methods, seeds, and something to vary: --vary or --preset-grid")
    trials = trials_of(methods, [parse_axis(text) for text in vary], tried, draws, min(seeds))
    made = [_experiment(trial, experiment, settings) for trial in trials]
    where = Where(Path(out), engine, device, Path(data_dir) if data_dir else None)
    tasks = [
        RunRequest((place, seed), replace(one, seed=seed), tuple(notes), scores)
        for place, one in enumerate(made)
        for seed in seeds
    ]
    outcomes = run_campaign(tasks, where, watcher or Silent())
    found = with_best(
        [
            _tried(trial, one, [outcomes[place, seed] for seed in seeds])
            for place, (trial, one) in enumerate(zip(trials, made, strict=True))
        ]
    )
    identity = spec_hash({"specs": [hash_of(one) for one in made], "seeds": list(seeds)})
    folder = Path(out) / f"sweep-{identity[:8]}"
    write_sweep(folder, found)
    return Sweep(tuple(found), folder)


def _experiment(
    trial: Trial, base: Experiment | Callable[[str], Experiment] | None, settings: Mapping[str, Any]
) -> Experiment:
    given = base(trial.method) if callable(base) else replace(base or Experiment(), method=trial.method)
    made = with_settings(given, {**settings, **trial.settings})
    if made.valid <= 0:
        raise UserError(
            "a sweep chooses on validation data and this experiment holds none out; set valid above 0, such as "
            "--set valid=0.1"
        )
    return replace(made, score_valid=True)


def _tried(trial: Trial, made: Experiment, outcomes: Sequence[RunOutcome]) -> Tried:
    missing = next((outcome.missing for outcome in outcomes if outcome.missing), "")
    if missing:
        raise UserError(f"the sweep cannot run: {missing}")
    varied = {**trial.options, **trial.settings}
    setting = ", ".join(f"{key}={value}" for key, value in varied.items()) or "as it is"
    failed = next((outcome.failed for outcome in outcomes if outcome.failed), "")
    if failed:
        return Tried(trial.name, setting, made.method, failed=failed, varied=varied)
    valid, test, server = (fmean(column) for column in zip(*(o.value for o in outcomes), strict=True))
    return Tried(trial.name, setting, made.method, len(outcomes), valid, test, server, varied=varied)
