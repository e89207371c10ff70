"""The trials of a sweep: axes read from text, and all their combinations or a random draw from them.

An axis is written ``learning_rate=0.01,0.03``, ``map.alpha=0.5,0.9`` or ``map.alpha=0.1..0.9``.  A key with a dot is an
option of a method, one without is a setting of the scene.  Commas separate values; a range ``low..high`` is sampled
uniformly, or uniformly on a logarithmic scale when ``:log`` follows; whole numbers at both ends give whole numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from idiolect.core.seeds import derive
from idiolect.errors import UserError
from idiolect.experiments.spec import Experiment, unknown_setting
from idiolect.experiments.sweep.parameter_grids import combinations
from idiolect.methods.catalogue import identifier
from idiolect.option_parsing import literal_or_text, split_outside_brackets, with_options
from idiolect.records import SCENE_SETTINGS

__all__ = ["Axis", "MethodSpace", "Trial", "parse_axis", "refuse_too_many", "spaces_of"]

MOST = 10_000  # trials of a sweep
FIXED = ("method", "seed", "data_seed", "score_valid", *SCENE_SETTINGS)  # not varied in a sweep
SETTINGS = [field.name for field in fields(Experiment) if field.name not in FIXED]


@dataclass(frozen=True)
class Axis:
    """One option or setting that a sweep varies.

    Args:
        method: the method whose option ``key`` is; empty for a setting of the scene.
        values: the values to choose from; empty for a range.
        low, high: ends of the range.
    """

    method: str
    key: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    logarithmic: bool = False

    @property
    def written(self) -> str:
        """The key as it is written on the command line."""
        return f"{self.method}.{self.key}" if self.method else self.key

    @property
    def is_whole(self) -> bool:
        """Whether a range gives whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, random: np.random.Generator) -> Any:
        """Returns a random value; a range between two whole numbers gives whole numbers, ends included."""
        if self.values:
            return self.values[int(random.integers(len(self.values)))]
        if self.logarithmic:
            drawn = math.exp(random.uniform(math.log(self.low), math.log(self.high)))
            return round(drawn) if self.is_whole else float(drawn)
        if self.is_whole:
            return int(random.integers(int(self.low), int(self.high), endpoint=True))
        return float(random.uniform(self.low, self.high))


def parse_axis(text: str) -> Axis:
    """Reads an axis as the command line writes it.

    >>> parse_axis("map.transfer=kd,mmd")
    Axis(method='map', key='transfer', values=('kd', 'mmd'), low=0.0, high=0.0, logarithmic=False)
    """
    name, equals, values = text.partition("=")
    method, dot, key = name.strip().rpartition(".")
    if not equals or not key or not values.strip():
        raise UserError(f"cannot read {text!r}; write key=a,b,c, method.option=a,b,c or key=low..high")
    if not dot and key in FIXED:
        raise UserError(
            f"{key} cannot be varied in a sweep: its trials are compared on the same data and seeds, with one network"
        )
    if not dot and key not in SETTINGS:
        raise unknown_setting(key)
    method = identifier(method)
    if ".." in values:
        return _range(text, method, key, values)
    return Axis(
        method, key, tuple(literal_or_text(word) for word in split_outside_brackets(values, ",") if word)
    )


def _range(text: str, method: str, key: str, values: str) -> Axis:
    ends, _, scale = values.partition(":")
    low, high = (literal_or_text(word) for word in ends.split("..", 1))
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
    if not numbers or not low < high or scale.strip() not in ("", "log") or (scale and low <= 0):
        raise UserError(f"cannot read the range of {text!r}; write low..high, or low..high:log from above 0")
    return Axis(method, key, (), low, high, bool(scale))


class Trial(NamedTuple):
    """One combination of values.

    Args:
        name: what the method is called in the sweep.
        method: the method with its options in this trial.
        options: options that are varied, by key.
        settings: settings of the scene that are varied, by key.
    """

    name: str
    method: str
    options: dict[str, Any]
    settings: dict[str, Any]


class MethodSpace(NamedTuple):
    """What a sweep varies of one method.

    Args:
        name: what the method is called in the sweep, without a second of that name.
        names: of the method and of the parts added to it.
        method: as it was given.
        axes: those that concern it.
        known: settings known beforehand, such as a paper's; each is combined with the axes.
    """

    name: str
    names: list[str]
    method: str
    axes: list[Axis]
    known: list[dict[str, Any]]

    def all_trials(self) -> list[Trial]:
        """Returns every known setting with every combination of the axes."""
        points = combinations({axis.written: list(axis.values) for axis in self.axes})
        return [self.trial(base, point) for base in self.known for point in points]

    def drawn_trials(self, draws: int, seed: int) -> list[Trial]:
        """Returns random pairs of a known setting and a value of every axis."""
        random = np.random.default_rng(derive(seed, "sweep", self.method))
        found = []
        for _ in range(draws):
            base = self.known[int(random.integers(len(self.known)))]
            found.append(self.trial(base, {axis.written: axis.draw(random) for axis in self.axes}))
        return found

    def typical_trial(self) -> Trial:
        """Returns one trial, the same for two spaces with the same trials."""
        random = np.random.default_rng(0)
        point = {axis.written: axis.values[0] if axis.values else axis.draw(random) for axis in self.axes}
        return self.trial(self.known[0], point)

    def trial(self, base: dict[str, Any], point: Mapping[str, Any]) -> Trial:
        """Returns the trial of a known setting and a value of every axis."""
        text, options = with_options(self.method, base), dict(base)
        for axis in self.axes:
            if axis.method:
                text = with_options(text, {axis.key: point[axis.written]}, axis.method)
                options[axis.key if axis.method == self.names[0] else axis.written] = point[axis.written]
        settings = {axis.key: point[axis.written] for axis in self.axes if not axis.method}
        return Trial(self.name, text, options, settings)


def spaces_of(
    methods: Sequence[str], axes: Sequence[Axis], tried: Mapping[str, list[dict[str, Any]]], drawn: bool
) -> list[MethodSpace]:
    """Returns what is varied of each method.

    Args:
        tried: settings of methods known beforehand.
        drawn: values are drawn, so that an axis may be a range.
    """
    terms = [_terms(method) for method in methods]
    _refuse_axes(axes, methods, terms, drawn)
    return [
        MethodSpace(
            name,
            names,
            method,
            [axis for axis in axes if axis.method in ("", *names)],
            tried.get(names[0], [{}]),
        )
        for name, names, method in zip(_called(methods, terms), terms, methods, strict=True)
    ]


def _called(methods: Sequence[str], terms: Sequence[Sequence[str]]) -> list[str]:
    """Returns a name of each method: without options, but the whole text of compositions and of several variants."""
    first = [names[0] if len(names) == 1 else method for names, method in zip(terms, methods, strict=True)]
    counts = Counter(first)
    return [name if counts[name] == 1 else method for name, method in zip(first, methods, strict=True)]


def refuse_too_many(trials: int) -> None:
    """Refuses a sweep of too many trials."""
    if trials > MOST:
        raise UserError(
            f"the sweep has {trials} trials, more than {MOST}; use fewer values or draw at random"
        )


def _refuse_axes(
    axes: Sequence[Axis], methods: Sequence[str], terms: Sequence[Sequence[str]], drawn: bool
) -> None:
    """Refuses axes that belong to no method, ranges where nothing is drawn, and keys that come twice."""
    for axis in axes:
        if axis.method and not any(axis.method in names for names in terms):
            raise UserError(
                f"{axis.written} varies {axis.method}, which is not among the methods: {', '.join(methods)}"
            )
        if not axis.values and not drawn:
            raise UserError(
                f"{axis.written} has a range, which only a random sweep draws from, or a Bayesian one; list values, or "
                "give --search random --trials N"
            )
    if len({axis.written for axis in axes}) < len(axes):
        raise UserError("the same key is varied twice; give all its values at once")


def _terms(method: str) -> list[str]:
    """Returns the names of the method and of the parts added to it."""
    return [identifier(term.partition("(")[0]) for term in split_outside_brackets(method, "+")]
