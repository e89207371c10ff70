"""A compared number: one number of a reproduction, its t interval over seeds, and the paper's number beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from scipy.special import stdtrit

from idiolect.experiments.jobs.campaign import RunOutcome
from idiolect.statistics import FEWEST_UNITS

__all__ = ["ORACLE", "ComparedNumber", "selection_rule", "t_interval"]

ORACLE = "oracle"


@dataclass(frozen=True)
class ComparedNumber:
    """One number of a reproduction beside the paper's.

    Args:
        value: mean over seeds; None where nothing was measured.
        spread: stands for the paper's own ±, over clients or settings.
        interval: 95 % interval of the mean, from three seeds on, as in all reports.
        paper, paper_spread: as printed; None where the paper prints none, or where nothing may be compared.
        ran_as: the method with its options.
        rule: ``oracle`` where something was chosen on test data, as a paper did.
        note: a doubt about the paper's number.
        missing, failed: why nothing was measured.
        diverged: seeds in which a run diverged; there is no mean then, and ``seeds`` says of how many.
        where: round and client of each divergence, and the seed.
        lost: settings of a grid whose runs diverged and that lost against the others.
    """

    row: str
    column: str
    value: float | None = None
    spread: float | None = None
    interval: tuple[float, float] | None = None
    seeds: int = 0
    paper: float | None = None
    paper_spread: float | None = None
    unit: str = ""
    ran_as: str = ""
    rule: str = ""
    note: str = ""
    missing: str = ""
    failed: str = ""
    diverged: int = 0
    where: str = ""
    lost: int = 0

    @property
    def difference(self) -> float | None:
        """The measured number less the paper's."""
        return None if self.value is None or self.paper is None else self.value - self.paper

    @property
    def within(self) -> bool | None:
        """Whether the paper's number lies in the interval; None where one of the two is missing."""
        if self.interval is None or self.paper is None:
            return None
        return self.interval[0] <= self.paper <= self.interval[1]

    def measured(self, values: Sequence[float]) -> ComparedNumber:
        """Returns this number with the mean and the interval of one value per seed."""
        interval = t_interval(values) if len(values) >= FEWEST_UNITS else None
        return replace(self, value=fmean(values), interval=interval, seeds=len(values))

    def not_measured(self, outcomes: Iterable[RunOutcome]) -> ComparedNumber:
        """Returns this number with the reasons why its runs gave nothing, each reason once."""
        found = list(outcomes)
        return self.lacking((one.missing for one in found), (one.failed for one in found))

    def divergent(self, by_seed: Mapping[int, Iterable[RunOutcome]]) -> ComparedNumber:
        """Returns this number as one whose runs diverged in some seeds; ``by_seed`` holds the runs of every seed."""
        texts = {seed: _joined(one.diverged for one in outcomes) for seed, outcomes in by_seed.items()}
        found = [seed for seed, text in texts.items() if text]
        where = "; ".join(f"seed {seed} {texts[seed]}" for seed in found)
        return replace(self, diverged=len(found), where=where, seeds=len(by_seed))

    @property
    def text_without_value(self) -> str:
        """What a table prints where there is no number."""
        return self.diverged_text or ("refused" if self.failed else "not run")

    @property
    def diverged_text(self) -> str:
        """What a table prints in place of the number; empty where nothing diverged.

        >>> ComparedNumber("FedAvg", "CIFAR-10", seeds=3, diverged=1).diverged_text
        'diverged (1 of 3 seeds)'
        """
        if not self.diverged:
            return ""
        return "diverged" if self.seeds == 1 else f"diverged ({self.diverged} of {self.seeds} seeds)"

    def lacking(self, missing: Iterable[str], failed: Iterable[str]) -> ComparedNumber:
        """Returns this number with reasons why nothing was measured; empty and repeated ones are left out."""
        return replace(self, missing=_joined(missing), failed=_joined(failed))


def _joined(reasons: Iterable[str]) -> str:
    return "; ".join(filter(None, dict.fromkeys(reasons)))


def selection_rule(predictor: str) -> str:
    """Returns ``oracle`` for a predictor whose name says that it was chosen on test data, and otherwise nothing.

    >>> selection_rule("mix(oracle)"), selection_rule("companion")
    ('oracle', '')
    """
    return ORACLE if ORACLE in predictor else ""


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Returns Student's t interval of a mean over few seeds, or None for fewer than two values.

    mean -+ t_{n-1, 0.975} s / sqrt(n)            Student, Biometrika 6, 1908

    >>> [round(bound, 3) for bound in t_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    if len(values) < 2:
        return None
    reach = float(stdtrit(len(values) - 1, (1 + level) / 2)) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - reach, fmean(values) + reach
