"""How a sweep finds the trials of each method: the plan that all methods share, and the search of one method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from idiolect.core.seeds import derive
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice
from idiolect.experiments.spec import Experiment
from idiolect.experiments.sweep.axes import MOST, MethodSpace, Trial
from idiolect.experiments.sweep.optuna_search import (
    EARLY_STOPS,
    PRESET,
    SEARCHES,
    KnownTrial,
    require_optuna,
    suggest,
)

__all__ = ["MethodSearch", "SearchPlan"]


@dataclass(frozen=True)
class SearchPlan:
    """How trials are found, and how many of each method there are.

    Args:
        search: ``grid``, ``random`` or ``bayes``.
        trials: of each method; 0 for as many as the budget allows, or as the grid has.
        budget: rounds of each method; 0 for no limit.
        early_stop: the rule that stops trials: ``none``, ``median`` or ``halving``.
        seeds: every trial runs once for each; the smallest is the seed of the search too.
    """

    search: str
    trials: int
    budget: int
    early_stop: str
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        refuse_unknown_choice("search", self.search, SEARCHES)
        refuse_unknown_choice("early_stop", self.early_stop, EARLY_STOPS)
        refuse_outside("trials", self.trials, 0)
        refuse_outside("budget", self.budget, 0)
        if self.search == "grid" and (self.trials or self.budget):
            raise UserError(
                "a grid tries all combinations; for a number of trials or a budget give --search random or bayes"
            )
        if self.search != "grid" and not (self.trials or self.budget):
            raise UserError(f"the search {self.search} needs --trials N, or --budget ROUNDS, of each method")
        if self.search == "bayes" or self.early_stop != "none":
            require_optuna()

    @property
    def most(self) -> int:
        """The most trials of a method: a round is the least that one costs."""
        return min(self.trials or MOST, self.budget or MOST)


@dataclass
class MethodSearch:
    """The search of one method.

    Args:
        place: of the method in the sweep.
        experiment: makes the experiment of a trial.
        fixed: the trials of a grid or of random draws, which are known beforehand.
    """

    place: int
    space: MethodSpace
    plan: SearchPlan
    experiment: Callable[[Trial], Experiment]
    fixed: list[Trial] = field(init=False)

    def __post_init__(self) -> None:
        plan = self.plan
        if plan.search == "grid":
            self.fixed = self.space.all_trials()
        elif plan.search == "random":
            self.fixed = self.space.drawn_trials(plan.most, min(plan.seeds))
        else:
            self.fixed = []

    @property
    def most(self) -> int:
        """The most trials that there can be."""
        return self.plan.most if self.plan.search == "bayes" else len(self.fixed)

    def point(self, known: Sequence[KnownTrial]) -> dict[str, Any]:
        """Returns what the next trial is to be known by; the trials of a grid and of random draws by their number."""
        if self.plan.search != "bayes":
            return {}
        seed = derive(min(self.plan.seeds), "search", self.space.method)
        return suggest(self.space.axes, len(self.space.known), known, len(known), seed)

    def trial(self, booked: KnownTrial) -> Trial:
        """Returns the trial that was booked."""
        if self.plan.search != "bayes":
            return self.fixed[booked.number]
        chosen = {
            axis.written: axis.values[booked.point[axis.written]]
            if axis.values
            else booked.point[axis.written]
            for axis in self.space.axes
        }
        return self.space.trial(self.space.known[booked.point.get(PRESET, 0)], chosen)
