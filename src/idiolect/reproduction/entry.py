"""One number of a reproduction beside the paper's."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from idiolect.reproduction.interval import t_interval

__all__ = ["ORACLE", "Entry", "entry_of", "rule_of"]

ORACLE = "oracle"


@dataclass(frozen=True)
class Entry:
    """Args:
    value: mean over seeds; None where nothing was measured.
    spread: what stands for the paper's own ±, over clients or settings.
    interval: of the mean, 95 %, from two seeds on.
    paper, paper_spread: as printed; None where the paper prints none, or where nothing may be compared.
    rule: ``oracle`` where something was picked on test data, as a paper did.
    note: a doubt about the paper's number.
    missing, failed: why nothing was measured.
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

    @property
    def difference(self) -> float | None:
        return None if self.value is None or self.paper is None else self.value - self.paper

    @property
    def within(self) -> bool | None:
        """Whether the paper's number lies in the interval; None where there is none to ask."""
        if self.interval is None or self.paper is None:
            return None
        return self.interval[0] <= self.paper <= self.interval[1]


def rule_of(predictor: str) -> str:
    """The word for how a predictor was picked, where its name says so.

    >>> rule_of("mix(oracle)"), rule_of("companion")
    ('oracle', '')
    """
    return ORACLE if ORACLE in predictor else ""


def entry_of(values: list[float], **known: Any) -> Entry:
    """An entry from one number per seed."""
    return Entry(value=fmean(values), interval=t_interval(values), seeds=len(values), **known)
