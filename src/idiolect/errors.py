"""The error that a user's mistake raises, and helpers that word it; the command line prints it and exits with 2."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, TypeVar

__all__ = ["UserError", "list_of", "near_names", "refuse_outside", "refuse_unknown_choice", "unknown_name"]

MOST = 10**9  # that a whole number without another limit may be: more is a slip, and would never end
MOST_NAMED = 30  # names that one sentence lists
LARGEST_FLOAT = 10**300
TINY = 1e-200  # a least value below it means: above 0
T = TypeVar("T")


class UserError(Exception):
    """A mistake in what the user asked for: one sentence saying what, where and what to do."""


def unknown_name(kind: str, name: str, known: Iterable[str], listed_by: str = "") -> UserError:
    """Returns an error that lists names near to a misspelt one, or all names when none is near.

    Args:
        listed_by: says where all names are listed, in place of a long list.

    >>> print(unknown_name("method", "fedpre", ["fedavg", "fedper"]))
    unknown method 'fedpre'; did you mean fedper?
    >>> print(unknown_name("method", "zzz", map(str, range(100)), "`idiolect methods` lists the methods"))
    unknown method 'zzz'; `idiolect methods` lists the methods
    """
    known = sorted(set(known))
    if near := near_names(name, known):
        hint = f"did you mean {' or '.join(near)}?"
    elif len(known) <= MOST_NAMED:
        hint = f"known: {', '.join(known)}"
    elif listed_by:
        hint = listed_by
    else:
        hint = f"known: {', '.join(known[:MOST_NAMED])} and {len(known) - MOST_NAMED} more"
    return UserError(f"unknown {kind} {name!r}; {hint}")


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Returns up to three names near to a misspelt one; letters and digits count, their case does not.

    >>> near_names("CIFAR10", ["cifar10", "cifar100"]), near_names("Fashion MNIST", ["mnist", "fashion-mnist"])
    (['cifar10'], ['fashion-mnist'])
    """
    bare = {_bare(one): one for one in known}
    if _bare(name) in bare:
        return [bare[_bare(name)]]
    return [bare[one] for one in get_close_matches(_bare(name), bare, n=3, cutoff=0.6)]


def _bare(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def refuse_outside(option: str, value: float, low: float, high: float = float("inf")) -> None:
    """Raises unless ``low <= value <= high``; a whole number has a highest value in any case.

    Of a limit that is a little off a round number the message says "above 0" or "below 1".

    >>> refuse_outside("alpha", 0.5, 0, 1)
    >>> refuse_outside("workers", 10**23, 1)
    Traceback (most recent call last):
    idiolect.errors.UserError: workers must be at most 1e+09, got 1e+23
    >>> refuse_outside("delta", 1, 1e-300, 1 - 1e-9)
    Traceback (most recent call last):
    idiolect.errors.UserError: delta must be above 0 and below 1, got 1
    """
    most = MOST if isinstance(value, int) and high == float("inf") else high
    if not (low <= value <= most and math.isfinite(value)):
        least = "above 0" if 0 < low < TINY else f"at least {low:g}"
        below = f" and below {high:g}" if float(f"{high:g}") > high else ""
        allowed = f"in [{low:g}, {high:g}]" if high < float("inf") and not below else least + below
        allowed = f"at most {most:g}" if high > most < value else allowed
        allowed = allowed if isinstance(value, int) or math.isfinite(value) else f"a finite number {allowed}"
        got = f"{value:g}" if abs(value) < LARGEST_FLOAT or not isinstance(value, int) else "a larger number"
        raise UserError(f"{option} must be {allowed}, got {got}")


def list_of(option: str, values: Any, kind: type[T], example: str) -> list[T]:
    """Returns the values as a list; refuses a single value, and a member of another kind.

    >>> list_of("seeds", range(2), int, "range(3)")
    [0, 1]
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise UserError(f"{option} must be a list, got {values!r}; write {option}={example}")
    found = list(values)
    for one in found:
        if not isinstance(one, kind) or isinstance(one, bool):
            raise UserError(f"{option} must be a list such as {example}; it holds {one!r}")
    return found


def refuse_unknown_choice(option: str, value: str, choices: Iterable[str]) -> None:
    """Raises unless the value is one of the choices."""
    if value not in (known := list(choices)):
        raise UserError(f"{option} must be one of {', '.join(known)}; got {value!r}")
