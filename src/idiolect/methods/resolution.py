"""The options that a method's text stands for: what is written, what its preset gives, and the defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from idiolect.core import Method, Part
from idiolect.errors import UserError, unknown_name
from idiolect.methods.catalogue import METHODS, PARTS, identifier
from idiolect.options import OptionSchema, parse_call, split_outside_brackets, write_call

__all__ = ["beyond_defaults", "given_options", "make_of", "options_of", "resolved", "shortest"]


def resolved(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Name and complete options of every term of a method's text, presets expanded and defaults applied.

    Two texts that mean the same give the same: values are plain ones that JSON can hold.

    >>> resolved("FedProx(weight=1) + fine_tune(epochs=2)")
    [('fedprox', {'weight': 1.0, 'form': 'sq_half'}), ('fine_tune', {'epochs': 2.0, 'lr_scale': 1.0})]
    """
    found = []
    for term in split_outside_brackets(text, "+"):
        name, options = given_options(term)
        found.append((name, options_of(name).with_defaults(options)))
    return found


def shortest(text: str) -> str:
    """The method's text with those options alone that are not defaults, one text for all that mean the same.

    >>> shortest("FedProx(weight=0.5, form=sq_half) + fine_tune()")
    'fedprox(weight=0.5) + fine_tune'
    """
    return " + ".join(write_call(name, beyond_defaults(name, options)) for name, options in resolved(text))


def given_options(term: str) -> tuple[str, dict[str, Any]]:
    """Name and options of one term as it is written, with its preset expanded."""
    name, options = parse_call(term)
    name = identifier(name)
    if name not in METHODS:
        make_of(name)
        return name, options
    presets = METHODS[name].presets
    chosen = options.pop("preset", None)
    if chosen is not None and not (isinstance(chosen, str) and chosen in presets):
        raise UserError(f"{name} has no preset {chosen!r}; known: {', '.join(presets) or 'it has none'}")
    return name, {**presets.get(chosen, {}), **options}


def make_of(name: str) -> Callable[..., Method | Part]:
    """The factory of a method or part; its signature is the configuration."""
    if name in METHODS:
        return METHODS[name].make
    if name in PARTS:
        return PARTS[name]
    raise unknown_name("method", name, [*METHODS, *PARTS])


def options_of(name: str) -> OptionSchema:
    """The options of a method or part: the parameters of its factory."""
    return OptionSchema.of(name, make_of(name))


def beyond_defaults(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a method's options that are not its defaults.

    >>> beyond_defaults("fedprox", {"weight": 0.5, "form": "sq_half"})
    {'weight': 0.5}
    """
    return options_of(name).beyond_defaults(options)
