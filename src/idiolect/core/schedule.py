"""Schedules of the learning rate: factors that fall as training progresses, within a stage or over rounds.

Progress is the number of steps (or rounds) done, divided by their total; ``final`` is reached after the last one, so
that no step has the rate 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from idiolect.errors import refuse_outside
from idiolect.option_parsing import read_choice

__all__ = ["cosine", "linear", "local_schedule", "resolved_local_schedule"]

Number = TypeVar("Number", float, Tensor)


def constant() -> Callable[[Number], Number] | None:
    """Keeps the rate."""
    return None


def cosine(final: float = 0.0) -> Callable[[Number], Number]:
    """Lets the factor fall from 1 to ``final`` along half a cosine.

    >>> [round(cosine(0.2)(progress), 3) for progress in (0.0, 0.5, 1.0)]
    [1.0, 0.6, 0.2]
    """
    refuse_outside("final", final, 0, 1)

    def factor(progress: Number) -> Number:
        angle = math.pi * progress
        height = torch.cos(angle) if isinstance(angle, Tensor) else math.cos(angle)
        return final + (1 - final) * (1 + height) / 2

    return factor


def linear(final: float = 0.0) -> Callable[[Number], Number]:
    """Lets the factor fall from 1 to ``final`` in a straight line."""
    refuse_outside("final", final, 0, 1)
    return lambda progress: 1 - (1 - final) * progress


LOCAL: dict[str, Callable[..., Callable[[Any], Any] | None]] = {
    "constant": constant,
    "cosine": cosine,
    "linear": linear,
}


@lru_cache
def local_schedule(text: str) -> Callable[[Tensor], Tensor] | None:
    """Returns the factor on the learning rate by the progress within a stage; None where it is constant."""
    name, given, _ = read_choice("local_schedule", text, LOCAL)
    return LOCAL[name](**given)


def resolved_local_schedule(text: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and all options of a schedule within a stage as it is written, defaults included."""
    name, given, schema = read_choice("local_schedule", text, LOCAL)
    return name, schema.with_defaults(given)
