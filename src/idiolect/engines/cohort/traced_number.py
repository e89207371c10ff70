"""A number that changes from round to round, while a function is traced.

Arithmetic with it is written down.  Whoever asks what it is, to decide by it, is refused: the trace would hold for one
round alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import Tensor

from idiolect.core.trees import tree_map

__all__ = ["Unknown"]


class Unknown:
    """Args:
    tensor: the input of the trace that stands for the number.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*tree_map(_plain, args), **tree_map(_plain, kwargs or {}))

    def __repr__(self) -> str:
        raise TypeError("what changes from round to round has no text while a function is traced")

    def __bool__(self) -> bool:
        raise TypeError("what changes from round to round decides nothing while a function is traced")

    __hash__ = None  # type: ignore[assignment]
    __str__ = __repr__
    __int__ = __float__ = __index__ = __bool__


def _plain(value: Any) -> Any:
    return value._tensor if isinstance(value, Unknown) else value


def _operator(name: str) -> Callable[..., Any]:
    compute = getattr(operator, name)

    def apply(self: Unknown, *other: Any) -> Any:
        found = compute(self._tensor, *map(_plain, other))
        return found if any(isinstance(each, Tensor) for each in other) else Unknown(found)

    return apply


def _reflected(name: str) -> Callable[..., Any]:
    compute = getattr(operator, name)
    return lambda self, other: Unknown(compute(other, self._tensor))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Unknown, f"__{_name}__", _operator(_name))
    setattr(Unknown, f"__r{_name}__", _reflected(_name))
for _name in ("neg", "abs", "eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Unknown, f"__{_name}__", _operator(_name))
