"""Bayesian search and early stopping by Optuna, as functions of what is known about a method's trials.

Nothing is kept here: a study is made anew from the trials for each question, and every suggestion has its own seed.  A
sweep that is continued therefore goes on as if it had not been interrupted.  Values are such that higher is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from idiolect.core.seeds import derive
from idiolect.errors import UserError, refuse_unknown_choice
from idiolect.experiments.sweep.axes import Axis

__all__ = ["EARLY_STOPS", "SEARCHES", "KnownTrial", "require_optuna", "should_stop", "suggest"]

SEARCHES = ("grid", "random", "bayes")
EARLY_STOPS = ("none", "median", "halving")
START_UP = 5  # random trials of a Bayesian search, and trials that the median is taken of at least
HALVING = 3  # of so many trials, one goes on to the next rung
PRESET = "preset"  # the parameter that chooses among settings known beforehand


@dataclass
class KnownTrial:
    """What a search knows of a trial.

    Args:
        number: counts the trials of the method, from 0.
        point: what was suggested: a number for a range, the place of the value for a list of values.
        curve: validation values by the rounds after which they were measured.
        value: the final one; None where there is none.
        marks: what Optuna's pruner has noted.
        state: ``running``, ``done``, ``stopped`` or ``refused``.
    """

    number: int
    point: dict[str, Any] = field(default_factory=dict)
    curve: dict[int, float] = field(default_factory=dict)
    value: float | None = None
    marks: dict[str, Any] = field(default_factory=dict)
    state: str = "running"


def require_optuna() -> Any:
    """Returns the package Optuna, which tells nothing but warnings.

    Raises:
        UserError: it is not installed.
    """
    try:
        optuna = import_module("optuna")
    except ModuleNotFoundError as error:
        raise UserError(
            "Bayesian search and early stopping need Optuna; install it with: pip install 'idiolect[tune]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def suggest(
    axes: Sequence[Axis], presets: int, known: Sequence[KnownTrial], number: int, seed: int
) -> dict[str, Any]:
    """Suggests the next point by a tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011).

    Args:
        presets: settings known beforehand, of which one is chosen.
        known: the trials so far; running ones keep others away from their place.
        number: that of the trial.
        seed: of the search; the suggestion's own is derived from it.
    """
    optuna = require_optuna()
    sampler = optuna.samplers.TPESampler(
        n_startup_trials=START_UP, seed=derive(seed, "suggestion", number) % 2**32, constant_liar=True
    )
    space = _space(optuna, axes, presets)
    study = _study(optuna, known, space, sampler=sampler)
    found: dict[str, Any] = study.ask(space).params
    return found


def should_stop(rule: str, known: Sequence[KnownTrial], trial: KnownTrial, first: int) -> bool:
    """Returns whether a trial is so far behind the others that it should stop; notes what the rule must remember.

    Args:
        rule: ``median`` stops a trial whose best value is below the median of the others at the same round;
            ``halving`` lets the best third go on at rounds that grow threefold (asynchronous successive halving, Li et
            al., MLSys 2020).
        known: all trials of the method.
        trial: one of them, with its curve up to now.
        first: the first round at which a trial may stop.
    """
    refuse_unknown_choice("early_stop", rule, EARLY_STOPS)
    if rule == "none":
        return False
    optuna = require_optuna()
    pruner = (
        optuna.pruners.MedianPruner(n_startup_trials=START_UP, n_warmup_steps=first)
        if rule == "median"
        else optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=HALVING)
    )
    study = _study(optuna, known, {}, pruner=pruner)
    place = [one.number for one in known].index(trial.number)
    stops = bool(pruner.prune(study, study.trials[place]))
    trial.marks = dict(study.trials[place].system_attrs)
    return stops


def _space(optuna: Any, axes: Sequence[Axis], presets: int) -> dict[str, Any]:
    kinds = optuna.distributions
    space = {PRESET: kinds.CategoricalDistribution(range(presets))} if presets > 1 else {}
    for axis in axes:
        if axis.values:
            space[axis.written] = kinds.CategoricalDistribution(range(len(axis.values)))
        elif axis.is_whole:
            space[axis.written] = kinds.IntDistribution(int(axis.low), int(axis.high), log=axis.logarithmic)
        else:
            space[axis.written] = kinds.FloatDistribution(axis.low, axis.high, log=axis.logarithmic)
    return space


def _study(optuna: Any, known: Sequence[KnownTrial], space: dict[str, Any], **options: Any) -> Any:
    """Returns a study that knows the trials."""
    states = optuna.trial.TrialState
    by_name = {
        "running": states.RUNNING,
        "done": states.COMPLETE,
        "stopped": states.PRUNED,
        "refused": states.FAIL,
    }
    study = optuna.create_study(direction="maximize", **options)
    for one in known:
        study.add_trial(
            optuna.trial.create_trial(
                state=by_name[one.state],
                value=one.value if one.state == "done" else None,
                params=one.point if space else {},
                distributions=space,
                intermediate_values=one.curve,
                system_attrs=one.marks,
            )
        )
    return study
