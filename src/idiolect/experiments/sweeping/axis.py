"""An axis of a sweep, as it is written: ``learning_rate=0.01,0.03``, ``map.alpha=0.5,0.9``, ``map.alpha=0.1..0.9``.

A key with a dot is an option of a method, one without a setting of the scene.  Values are separated by commas; a
range ``low..high`` is drawn from, uniformly, or evenly on a logarithmic scale when ``:log`` follows.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from idiolect.errors import UserError, unknown_name
from idiolect.experiments.spec import Experiment
from idiolect.methods.catalogue import identifier
from idiolect.options import split_outside_brackets

__all__ = ["Axis", "parse_axis"]

FIXED = (
    "method",
    "seed",
    "dataset",
    "partition",
    "clients",
    "pool",
    "client_test",
    "valid",
    "test",
    "public",
    "public_in_test",
    "score_valid",
)
SETTINGS = [field.name for field in fields(Experiment) if field.name not in FIXED]


@dataclass(frozen=True)
class Axis:
    """Args:
    method: whose option ``key`` is; empty for a setting of the scene.
    values: to choose from; empty for a range.
    """

    method: str
    key: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    logarithmic: bool = False

    @property
    def written(self) -> str:
        return f"{self.method}.{self.key}" if self.method else self.key

    def draw(self, random: np.random.Generator) -> Any:
        """One value; whole numbers at both ends of a range give whole numbers between them, ends included."""
        if self.values:
            return self.values[int(random.integers(len(self.values)))]
        if self.logarithmic:
            return float(math.exp(random.uniform(math.log(self.low), math.log(self.high))))
        if isinstance(self.low, int) and isinstance(self.high, int):
            return int(random.integers(self.low, self.high, endpoint=True))
        return float(random.uniform(self.low, self.high))


def parse_axis(text: str) -> Axis:
    """
    >>> parse_axis("map.transfer=kd,mmd")
    Axis(method='map', key='transfer', values=('kd', 'mmd'), low=0.0, high=0.0, logarithmic=False)
    """
    name, equals, values = text.partition("=")
    method, dot, key = name.strip().rpartition(".")
    if not equals or not key or not values.strip():
        raise UserError(f"cannot read {text!r}; write key=a,b,c, method.option=a,b,c or key=low..high")
    if not dot and key in FIXED:
        raise UserError(
            f"{key} cannot be varied in a sweep: its trials are compared on the same data and seeds"
        )
    if not dot and key not in SETTINGS:
        raise unknown_name("setting", key, SETTINGS)
    method = identifier(method)
    if ".." in values:
        return _range(text, method, key, values)
    return Axis(method, key, tuple(_value(word) for word in split_outside_brackets(values, ",") if word))


def _range(text: str, method: str, key: str, values: str) -> Axis:
    ends, _, scale = values.partition(":")
    low, high = (_value(word) for word in ends.split("..", 1))
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
    if not numbers or not low < high or scale.strip() not in ("", "log") or (scale and low <= 0):
        raise UserError(f"cannot read the range of {text!r}; write low..high, or low..high:log from above 0")
    return Axis(method, key, (), low, high, bool(scale))


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()
