"""Schedules of the learning rate over the rounds of a run, after the warm-up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from idiolect.core.schedule import cosine, linear
from idiolect.errors import refuse_outside
from idiolect.option_parsing import read_choice

__all__ = ["rate_factor", "resolved_schedule"]

LEAST_FACTOR = 1e-9

Factor = Callable[[int, int], float]  # round after the warm-up, from 0; rounds after the warm-up


def constant() -> Factor:
    """Keeps the rate."""
    return lambda round, rounds: 1.0


def step(every: int = 10, factor: float = 0.1) -> Factor:
    """Multiplies the rate by ``factor`` after every so many rounds."""
    refuse_outside("every", every, 1)
    refuse_outside("factor", factor, LEAST_FACTOR)
    return lambda round, rounds: float(factor ** (round // every))


def cosine_over_rounds(final: float = 0.0) -> Factor:
    """Lets the rate fall to ``final`` times its first value along half a cosine."""
    fall = cosine(final)
    return lambda round, rounds: fall(round / rounds)


def linear_over_rounds(final: float = 0.0) -> Factor:
    """Lets the rate fall to ``final`` times its first value in a straight line."""
    fall = linear(final)
    return lambda round, rounds: fall(round / rounds)


SCHEDULES: dict[str, Callable[..., Factor]] = {
    "constant": constant,
    "cosine": cosine_over_rounds,
    "linear": linear_over_rounds,
    "step": step,
}


def rate_factor(text: str, round: int, rounds: int) -> float:
    """Returns the factor that a schedule puts on the learning rate.

    Args:
        text: such as ``cosine`` or ``step(every=20)``.
        round: counted from 0 at the end of the warm-up; before that the factor is 1.
        rounds: their number after the warm-up.

    >>> [rate_factor("linear", round, 4) for round in range(-1, 4)]
    [1.0, 1.0, 0.75, 0.5, 0.25]
    """
    name, given, _ = read_choice("schedule", text, SCHEDULES)
    return SCHEDULES[name](**given)(max(round, 0), max(rounds, 1))


def resolved_schedule(text: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and all options of a schedule as it is written, defaults included."""
    name, given, schema = read_choice("schedule", text, SCHEDULES)
    return name, schema.with_defaults(given)
