"""Methods composed as text: ``fedper(count=2) + restricted_softmax(alpha=0.5)``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from idiolect import parts
from idiolect.calls import split_outside_brackets
from idiolect.core import Method, Part, chain
from idiolect.errors import UserError
from idiolect.methods.resolution import given_options, make_of

__all__ = ["method"]


def method(text: str) -> Method:
    """The method that ``text`` names or composes.

    >>> method("fedper(count=2)").parts[1].name
    'private_layers'
    >>> method("fedavg + restricted_softmax(alpha=0.5)").name
    'fedavg + restricted_softmax(alpha=0.5)'
    """
    terms = split_outside_brackets(text, "+")
    if not all(terms):
        raise UserError(f"cannot read the method {text!r}; write name, name(key=value) or a + b")
    pieces = [_piece(term) for term in terms]
    if len(pieces) == 1 and isinstance(pieces[0], Method):
        return pieces[0]
    whole = [piece.name for piece in pieces if isinstance(piece, Method)]
    if len(whole) > 1:
        raise UserError(
            f"{' and '.join(whole)} are whole methods and cannot be combined; add parts to one of them"
        )
    if not any("server update" in part.roles for part in chain(*pieces).parts):
        pieces.insert(0, parts.average())
    return chain(*pieces, name=" + ".join(terms))


def _piece(term: str) -> Method | Part:
    name, options = given_options(term)
    return _call(name, make_of(name), options)


def _call(name: str, make: Callable[..., Any], options: dict[str, Any]) -> Any:
    known = inspect.signature(make).parameters
    for option in options:
        if option not in known:
            listed = ", ".join(known) or "it takes none"
            raise UserError(f"{name} has no option {option!r}; known: {listed}")
    for option, value in options.items():
        _refuse_type(name, option, value, known[option].annotation)
    return make(**options)


def _refuse_type(name: str, option: str, value: Any, annotation: Any) -> None:
    """A value of another kind than the signature says is refused by name."""
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    kinds = re.split(r"\s*\|\s*", written)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": number,
        "str": isinstance(value, str),
        "None": value is None,
        "bool": isinstance(value, bool),
        "tuple[float, ...]": isinstance(value, tuple | list)
        and all(isinstance(v, int | float) and not isinstance(v, bool) for v in value),
    }
    if not any(fits.get(kind, True) for kind in kinds):
        raise UserError(f"{name}: option {option} must be {written}, got {value!r}")
