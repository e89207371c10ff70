"""Fingerprints: keys that two values share only if they compute the same, under which traced steps are cached.

Functions are equal when their code is the same object and what they close over is equal, so that a method that is read
twice, or a stage that is planned anew in every round, is recognised.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from torch import Tensor, nn

from idiolect.core import Program

__all__ = ["ProgramKeys", "fingerprint"]

PLAIN = (type(None), bool, int, float, complex, str, bytes)


class _ByIdentity:
    """A key that equals only itself; it holds the object, so that no other object gets its identity."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def fingerprint(value: Any, above: tuple[int, ...] = ()) -> Hashable:
    """Returns the key of ``value``: by content for plain values, containers, functions and modules, else by identity.

    Of a module's parameters and buffers only shapes count, since steps are given their values from outside.

    >>> def scaled(by):
    ...     return lambda x: by * x
    >>> fingerprint(scaled(2.0)) == fingerprint(scaled(2.0)), fingerprint(scaled(2.0)) == fingerprint(scaled(3.0))
    (True, False)
    """
    if isinstance(value, PLAIN):
        return type(value), value
    if id(value) in above:
        return "above", above.index(id(value))
    inside = (*above, id(value))

    def each(items: Any) -> tuple[Hashable, ...]:
        return tuple(fingerprint(item, inside) for item in items)

    if isinstance(value, Mapping):
        return type(value), each(value.keys()), each(value.values())
    if isinstance(value, tuple | list | set | frozenset):
        return type(value), each(value)
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return value.__code__, each(cells), each(value.__defaults__ or ()), each([value.__kwdefaults__])
    if isinstance(value, MethodType):
        return each([value.__self__, value.__func__])
    if isinstance(value, partial):
        return each([value.func, value.args, value.keywords])
    if isinstance(value, Tensor) or not hasattr(value, "__dict__") or isinstance(value, type):
        return _ByIdentity(value)
    own = dict(vars(value))
    if isinstance(value, nn.Module):
        own |= {name: _shapes(own[name]) for name in ("_parameters", "_buffers")}
    return type(value), each([own])


def _shapes(tensors: Mapping[str, Tensor | None]) -> dict[str, Any]:
    return {name: None if t is None else (tuple(t.shape), str(t.dtype)) for name, t in tensors.items()}


class ProgramKeys:
    """Keys of programs apart from what changes with the round; the expensive part is computed once a run."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Program, Hashable]] = {}

    def __call__(self, program: Program) -> Hashable:
        known = self._known.get(id(program.task))
        if known is None or known[0].method is not program.method or known[0].scene != program.scene:
            content = (program.method.parts, program.task, program.scene, program.differentiate)
            known = self._known[id(program.task)] = (program, fingerprint(content))
        return known[1], program.clock._replace(round=0, learning_rate=0.0)
