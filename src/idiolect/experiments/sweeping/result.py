"""A trial that was run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["Tried", "with_best"]


@dataclass(frozen=True)
class Tried:
    """Args:
    name: the method's.
    setting: what was varied, as text.
    method: as it ran.
    varied: what was varied, by key.
    valid, test, server: accuracies, means over clients and seeds; NaN where not measured.
    best: the highest validation accuracy among the method's settings, the first of equals.
    failed: why it was refused.
    """

    name: str
    setting: str
    method: str
    seeds: int = 0
    valid: float = math.nan
    test: float = math.nan
    server: float = math.nan
    best: bool = False
    failed: str = ""
    varied: Mapping[str, Any] = field(default_factory=dict)


def with_best(tried: Sequence[Tried]) -> list[Tried]:
    """Marks the best setting of every method; refused ones are out of the running."""
    best: dict[str, int] = {}
    for place, one in enumerate(tried):
        if not one.failed and (one.name not in best or one.valid > tried[best[one.name]].valid):
            best[one.name] = place
    return [replace(one, best=best.get(one.name) == place) for place, one in enumerate(tried)]
