"""The trials of a sweep: every combination, or some drawn at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from idiolect.calls import split_outside_brackets, with_options
from idiolect.core.seeds import derive
from idiolect.errors import UserError
from idiolect.experiments.sweeping.axis import Axis
from idiolect.experiments.sweeping.parameter_grids import combinations
from idiolect.methods.catalogue import identifier

__all__ = ["Trial", "trials_of"]

MOST = 10_000


class Trial(NamedTuple):
    """Args:
    method: with its options in this trial.
    settings: of the scene in this trial.
    """

    name: str
    method: str
    options: dict[str, Any]
    settings: dict[str, Any]


def trials_of(
    methods: Sequence[str],
    axes: Sequence[Axis],
    tried: Mapping[str, list[dict[str, Any]]],
    draws: int = 0,
    seed: int = 0,
) -> list[Trial]:
    """All trials, method by method.

    Args:
        tried: settings of methods known beforehand, such as a paper's; each is combined with the axes.
        draws: of each method at random; 0 makes all combinations.
    """
    terms = [_terms(method) for method in methods]
    for axis in axes:
        if axis.method and not any(axis.method in names for names in terms):
            raise UserError(
                f"{axis.written} varies {axis.method}, which is not among the methods: {', '.join(methods)}"
            )
        if not axis.values and not draws:
            raise UserError(
                f"{axis.written} has a range, which only a random sweep draws from; list values instead"
            )
    if len({axis.written for axis in axes}) < len(axes):
        raise UserError("the same key is varied twice; give all its values at once")
    found = []
    for names, method in zip(terms, methods, strict=True):
        own = [axis for axis in axes if axis.method in ("", *names)]
        known = tried.get(names[0], [{}])
        points = _drawn(own, known, draws, derive(seed, "sweep", method)) if draws else _all(own, known)
        found += [_trial(names, method, own, point, base) for base, point in points]
    if len(found) > MOST:
        raise UserError(
            f"the sweep has {len(found)} trials, more than {MOST}; use fewer values or draw at random"
        )
    return found


Points = Iterator[tuple[dict[str, Any], dict[str, Any]]]


def _all(axes: Sequence[Axis], known: Sequence[dict[str, Any]]) -> Points:
    for base in known:
        for point in combinations({axis.written: list(axis.values) for axis in axes}):
            yield base, point


def _drawn(axes: Sequence[Axis], known: Sequence[dict[str, Any]], draws: int, seed: int) -> Points:
    random = np.random.default_rng(seed)
    for _ in range(draws):
        base = known[int(random.integers(len(known)))]
        yield base, {axis.written: axis.draw(random) for axis in axes}


def _trial(
    names: list[str], method: str, axes: Sequence[Axis], point: dict[str, Any], base: dict[str, Any]
) -> Trial:
    text, options = with_options(method, base), dict(base)
    for axis in axes:
        if axis.method:
            text = with_options(text, {axis.key: point[axis.written]}, axis.method)
            options[axis.key if axis.method == names[0] else axis.written] = point[axis.written]
    settings = {axis.key: point[axis.written] for axis in axes if not axis.method}
    return Trial(names[0] if len(names) == 1 else method, text, options, settings)


def _terms(method: str) -> list[str]:
    """Names of the method and of the parts added to it."""
    return [identifier(term.partition("(")[0]) for term in split_outside_brackets(method, "+")]
