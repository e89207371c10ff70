"""``sweep``: many settings of methods and of the scene; the best is chosen on validation data and written as tables.

All methods have the same budget: the same number of trials, or of rounds.  The settings are a grid, random draws, or
suggestions of a Bayesian search, and trials that fall behind may be stopped early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from idiolect.data.availability import availability
from idiolect.errors import UserError, list_of, refuse_outside
from idiolect.experiments.execution import Execution, split_keywords
from idiolect.experiments.identity import hash_of, refuse_repeated
from idiolect.experiments.own_data import with_own_data
from idiolect.experiments.shown_settings import shows_settings
from idiolect.experiments.spec import Experiment, with_settings
from idiolect.experiments.sweep.axes import Axis, MethodSpace, Trial, parse_axis, refuse_too_many, spaces_of
from idiolect.experiments.sweep.method_search import MethodSearch, SearchPlan
from idiolect.experiments.sweep.parameter_grids import grid
from idiolect.experiments.sweep.tables import (
    TrialResult,
    best_rows,
    sweep_points,
    trial_rows,
    with_best,
    write_sweep,
)
from idiolect.experiments.sweep.trials import TrialRuns, TrialScores, trial_scores
from idiolect.records import spec_hash

__all__ = [
    "Sweep",
    "TrialResult",
    "TrialScores",
    "best_rows",
    "sweep",
    "sweep_points",
    "trial_rows",
    "trial_scores",
    "with_best",
]

AROUND = 10.0  # factor by which the learning rate varies to both sides where nothing else is asked for


@dataclass(frozen=True)
class Sweep:
    """The outcome of a sweep.

    Args:
        tried: every trial, in order; the best of each method is marked.
        folder: holds the tables.
    """

    tried: tuple[TrialResult, ...]
    folder: Path

    @property
    def best(self) -> dict[str, TrialResult]:
        """The best trial of every method, by the method's name."""
        return {one.name: one for one in self.tried if one.best}


@shows_settings
def sweep(
    methods: Sequence[str] = (),
    *,
    vary: Sequence[str] = (),
    preset_grid: str | None = None,
    draws: int = 0,
    search: str | None = None,
    trials: int = 0,
    budget: int = 0,
    early_stop: str = "none",
    seeds: Sequence[int] = (0,),
    experiment: Experiment | Callable[[str], Experiment] | None = None,
    execution: Execution | None = None,
    **settings: Any,
) -> Sweep:
    """Runs every trial that is not done yet and writes which setting of each method is best on validation data.

    An interrupted sweep is continued by the same call.

    Args:
        methods: names, with options that stay as they are; those of the preset grid unless given.
        vary: axes such as ``map.alpha=0.5,0.9`` or ``learning_rate=0.01..0.1:log``.  A random or Bayesian search that
            is given none varies the learning rate, tenfold to both sides on a logarithmic scale.
        preset_grid: settings that a paper's authors tried, by name: ``map``, ``persfl``, ...
        draws: the same as ``search="random"`` with so many ``trials``.
        search: ``grid`` tries all combinations, ``random`` draws, and ``bayes`` learns from the trials before (Optuna's
            TPE, the extra ``tune``).
        trials: number of trials of each method.
        budget: rounds of each method, those of all its trials and seeds together; a trial that does not fit whole is
            not begun.
        early_stop: ``median`` or ``halving`` stops trials that fall behind on validation data, judged on the first
            seed; a method that is scored only at the end of a run is never stopped.
        seeds: every trial runs once for each.
        experiment: what all trials have in common, or a function that gives each method its experiment.
        execution: how the runs are made; its ``out`` holds the runs and a folder with the tables.  Interrupted runs
            are always resumed.  With several ``jobs``, a Bayesian search suggests before all trials are known, and
            early stopping knows other trials; a grid and random draws give the same results.
        settings: fields of ``Experiment`` and of ``Execution``; see ``run``.
    """
    search, trials = _search_of(draws, search, trials)
    tried = grid(preset_grid).settings(in_scene=callable(experiment)) if preset_grid else {}
    methods = list_of("methods", methods, str, "['fedavg', 'fedper']") or list(tried)
    vary = list_of("vary", vary, str, "['learning_rate=0.01,0.03']")
    seeds = list_of("seeds", seeds, int, "range(3)")
    plan = SearchPlan(search, trials, budget, early_stop, tuple(seeds))
    if not methods or not seeds or not (vary or tried or search in ("random", "bayes")):
        raise UserError("a sweep needs methods, seeds, and something to vary: --vary or --preset-grid")
    execution, chosen = split_keywords(execution, with_own_data(settings, experiment is None))

    def made(trial: Trial) -> Experiment:
        return _experiment(trial.method, trial.settings, experiment, chosen)

    axes = [parse_axis(text) for text in vary]
    bases = [_experiment(method, {}, experiment, chosen) for method in methods]
    if not axes and not tried:
        axes = [_around_learning_rate(bases[0])]
    searches = _searches(spaces_of(methods, axes, tried, plan.search != "grid"), plan, made)
    refuse_repeated(methods, [made(one.space.typical_trial()) for one in searches])
    _refuse_missing_data(bases, execution)
    folder = Path(execution.out) / f"sweep-{_identity(searches, bases, axes, plan)[:8]}"
    runs = TrialRuns(searches, plan, replace(execution, resume=True), folder)
    found = with_best(runs.run())
    write_sweep(folder, found, _facts(plan, vary, runs, found))
    return Sweep(tuple(found), folder)


def _search_of(draws: int, search: str | None, trials: int) -> tuple[str, int]:
    """Returns the search and its trials; ``draws`` is another way to ask for a random one."""
    refuse_outside("draws", draws, 0)
    if draws and (trials or search not in (None, "random")):
        raise UserError("draws is a random search of so many trials; leave search and trials out, or draws")
    return "random" if draws else search or "grid", draws or trials


def _searches(
    spaces: Sequence[MethodSpace], plan: SearchPlan, made: Callable[[Trial], Experiment]
) -> list[MethodSearch]:
    """Returns the search of each method; refuses more trials than a sweep can have."""
    found = [MethodSearch(place, space, plan, made) for place, space in enumerate(spaces)]
    if plan.search != "bayes" and not plan.budget:
        refuse_too_many(sum(len(one.fixed) for one in found))
    return found


def _around_learning_rate(base: Experiment) -> Axis:
    """Returns what a search varies where nothing is asked for: the learning rate, around that of the experiment."""
    rate = float(base.learning_rate)
    if rate <= 0:
        raise UserError("a search without --vary varies the learning rate, which is 0 here; give --vary")
    return Axis("", "learning_rate", (), rate / AROUND, rate * AROUND, True)


def _experiment(
    method: str,
    varied: Mapping[str, Any],
    base: Experiment | Callable[[str], Experiment] | None,
    settings: Mapping[str, Any],
) -> Experiment:
    given = base(method) if callable(base) else replace(base or Experiment(), method=method)
    made = with_settings(given, {**settings, **varied})
    if made.valid <= 0:
        raise UserError(
            "a sweep chooses on validation data and this experiment holds none out; set valid above 0, such as "
            "--set valid=0.1"
        )
    return replace(made, score_valid=True)


def _refuse_missing_data(bases: Sequence[Experiment], execution: Execution) -> None:
    for name in dict.fromkeys(base.dataset for base in bases):
        data = availability(name, execution.data_dir)
        if not data.present:
            raise UserError(f"the sweep cannot run: {data.dataset} is not on this machine; {data.advice}")


def _identity(
    searches: Sequence[MethodSearch], bases: Sequence[Experiment], axes: Sequence[Axis], plan: SearchPlan
) -> str:
    """Returns the hash of everything that makes two sweeps the same."""
    asked: dict[str, Any] = {"seeds": list(plan.seeds)}
    if plan.search == "bayes":
        asked |= {"specs": [hash_of(base) for base in bases], "axes": [repr(axis) for axis in axes]}
        asked |= {
            "known": [one.space.known for one in searches],
            "trials": plan.trials,
            "search": plan.search,
        }
    else:
        asked["specs"] = [hash_of(one.experiment(trial)) for one in searches for trial in one.fixed]
    if plan.budget:
        asked["budget"] = plan.budget
    if plan.early_stop != "none":
        asked["early_stop"] = plan.early_stop
    return spec_hash(asked)


def _facts(
    plan: SearchPlan, vary: Sequence[str], runs: TrialRuns, found: Sequence[TrialResult]
) -> dict[str, Any]:
    """Returns how a sweep was made and the best experiment of each method, for ``compare``."""
    best = [
        {
            "name": one.name,
            "setting": one.setting,
            "trial": one.number,
            "trials": sum(other.name == one.name for other in found),
            "rounds": sum(other.rounds for other in found if other.name == one.name),
            "valid": one.valid,
            "spec": asdict(runs.experiment(one)),
        }
        for one in found
        if one.best
    ]
    return {"format": 1, **asdict(plan), "search_seed": min(plan.seeds), "vary": list(vary), "best": best}
