"""Checks of option values, whose errors name the partition, the option, the value and the allowed range."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from idiolect.errors import UserError

__all__ = ["check_flag", "check_real", "check_whole"]


def check_whole(
    partition: str, option: str, value: Any, low: int, high: int | None = None, why: str = ""
) -> int:
    """Returns a whole number in [low, high]; `why` explains the bound in the error."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if whole and value >= low and (high is None or value <= high):
        return int(value)
    allowed = f"of at least {low}" if high is None else f"from {low} to {high}"
    raise UserError(f"{partition}: {option}={value!r} must be a whole number {allowed}{_because(why)}")


def check_real(partition: str, option: str, value: Any, low: float, high: float) -> float:
    """Returns a number in [low, high], hence a finite one."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    if real and low <= value <= high:
        return float(value)
    raise UserError(f"{partition}: {option}={value!r} must be a number from {low:g} to {high:g}")


def check_flag(partition: str, option: str, value: Any) -> bool:
    """Returns True or False, and refuses 0, 1 and words."""
    if isinstance(value, bool):
        return value
    raise UserError(f"{partition}: {option}={value!r} must be True or False")


def _because(why: str) -> str:
    return f" ({why})" if why else ""
