"""Methods composed as text: ``fedper(count=2) + restricted_softmax(alpha=0.5)``."""

from __future__ import annotations

from dataclasses import replace

from idiolect import parts
from idiolect.core import Method, Part, chain
from idiolect.errors import UserError
from idiolect.methods.catalogue import identifier
from idiolect.methods.resolution import given_options, make_of, options_of
from idiolect.options import split_outside_brackets

__all__ = ["method", "pieces"]


def method(text: str) -> Method:
    """The method that ``text`` names or composes.

    >>> method("fedper(count=2)").parts[1].name
    'private_layers'
    >>> method("fedavg + restricted_softmax(alpha=0.5)").name
    'fedavg + restricted_softmax(alpha=0.5)'
    >>> [part.name for part in method("ditto + fedadam").parts]
    ['proximal_companion', 'server_optimiser']
    """
    terms = _terms(text)
    if len(terms) == 1 and isinstance(made := _piece(terms[0]), Method):
        return made
    return chain(*pieces(text), name=" + ".join(terms))


def pieces(text: str) -> list[Method | Part]:
    """What ``text`` puts together, methods called as they are written; an average beneath parts that bring none."""
    found: list[Method | Part] = []
    for term in _terms(text):
        made = _piece(term)
        found.append(replace(made, name=_written(term)) if isinstance(made, Method) else made)
    brought = [part for made in found for part in (made.parts if isinstance(made, Method) else (made,))]
    beneath = [] if any("server update" in part.roles for part in brought) else [parts.average()]
    return [*beneath, *found]


def _terms(text: str) -> list[str]:
    terms = split_outside_brackets(text, "+")
    if not all(terms):
        raise UserError(f"cannot read the method {text!r}; write name, name(key=value) or a + b")
    return terms


def _written(term: str) -> str:
    name, bracket, rest = term.partition("(")
    return identifier(name) + bracket + rest


def _piece(term: str) -> Method | Part:
    name, options = given_options(term)
    known = options_of(name)
    known.refuse_unknown(options)
    known.refuse_wrong_kinds(options)
    return make_of(name)(**options)
