"""Methods written as text, such as ``fedper(count=2) + restricted_softmax(alpha=0.5)``.

``method`` makes the method that a text names or composes; ``resolved`` gives the complete options that it stands for:
what is written, what its preset gives, and the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from idiolect import parts
from idiolect.core import Method, Part, chain
from idiolect.errors import UserError, unknown_name
from idiolect.methods.catalogue import METHODS, PARTS, identifier
from idiolect.option_parsing import OptionSchema, parse_call, split_outside_brackets, write_call
from idiolect.own_code import load_plugins, source_digest

__all__ = ["beyond_defaults", "method", "options_of", "own_sources", "pieces", "resolved", "shortest"]

LISTED = "`idiolect methods` lists the methods, and the module idiolect.parts the parts"


def method(text: str) -> Method:
    """Returns the method that ``text`` names or composes.

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
    """Returns the methods and parts that ``text`` puts together, each method named as it is written.

    If none of them updates the server, an average comes first.
    """
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
    name, options = _given_options(term)
    known = options_of(name)
    known.refuse_unknown(options)
    known.refuse_wrong_kinds(options)
    return _factory(name)(**options)


def resolved(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Returns name and complete options of every term of a method's text, presets expanded and defaults applied.

    Two texts that mean the same give the same result.  Its values are those that JSON can hold.

    >>> resolved("FedProx(weight=1) + fine_tune(epochs=2)")
    [('fedprox', {'weight': 1.0, 'form': 'sq_half'}), ('fine_tune', {'epochs': 2.0, 'lr_scale': 1.0, 'tuned': 'all'})]
    """
    found = []
    for term in split_outside_brackets(text, "+"):
        name, options = _given_options(term)
        found.append((name, options_of(name).with_defaults(options)))
    return found


def own_sources(text: str) -> dict[str, str]:
    """Returns, by name, a digest of the text of every registered method and part in a method's text."""
    terms = (_given_options(term)[0] for term in split_outside_brackets(text, "+"))
    found = {name: source_digest(_factory(name)) for name in terms}
    return {name: digest for name, digest in found.items() if digest}


def shortest(text: str) -> str:
    """Returns the method's text with only the options that are not defaults: the same text for all that mean the same.

    >>> shortest("FedProx(weight=0.5, form=sq_half) + fine_tune()")
    'fedprox(weight=0.5) + fine_tune'
    """
    return " + ".join(write_call(name, beyond_defaults(name, options)) for name, options in resolved(text))


def beyond_defaults(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of a method's options that are not its defaults.

    >>> beyond_defaults("fedprox", {"weight": 0.5, "form": "sq_half"})
    {'weight': 0.5}
    """
    return options_of(name).beyond_defaults(options)


def options_of(name: str) -> OptionSchema:
    """Returns the options of a method or part: the parameters of its factory."""
    return OptionSchema.of(name, _factory(name))


def _given_options(term: str) -> tuple[str, dict[str, Any]]:
    """Returns name and options of one term as it is written, with its preset expanded."""
    name, bracket, rest = term.partition("(")
    name, options = parse_call(identifier(name) + bracket + rest)
    if name not in METHODS:
        _factory(name)
        return name, options
    presets = METHODS[name].presets
    chosen = options.pop("preset", None)
    if chosen is not None and not (isinstance(chosen, str) and chosen in presets):
        raise UserError(f"{name} has no preset {chosen!r}; known: {', '.join(presets) or 'it has none'}")
    return name, {**(presets[chosen] if chosen is not None else {}), **options}


def _factory(name: str) -> Callable[..., Method | Part]:
    """Returns the factory of a method or part."""
    if name in METHODS:
        return METHODS[name].make
    if name in PARTS:
        return PARTS[name]
    load_plugins()
    if name in METHODS or name in PARTS:
        return _factory(name)
    raise unknown_name("method", name, [*METHODS, *PARTS], LISTED)
