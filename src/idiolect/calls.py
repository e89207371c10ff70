"""Reads a call written as text, `name(key=value, ...)`, without evaluating any of it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from idiolect.errors import UserError

__all__ = ["parse_call", "split_outside_brackets", "with_defaults", "with_options", "write_call"]


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """Splits `name` or `name(key=value, ...)` into the name and its options.

    A value is a Python literal (number, string, True, None, tuple, list, ...); a bare word is read as a
    string.

    >>> parse_call("label_k(k=2)")
    ('label_k', {'k': 2})
    >>> parse_call("inherited_model(transfer=kd, weight=-0.5)")
    ('inherited_model', {'transfer': 'kd', 'weight': -0.5})
    >>> parse_call("iid")
    ('iid', {})
    """
    node = _expression(text)
    if isinstance(node, ast.Name):
        return node.id, {}
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise _unreadable(text)
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise UserError(f"{text!r} has an option without a name; write {node.func.id}(key=value, ...)")
    options: dict[str, Any] = {}
    for keyword in node.keywords:
        option = str(keyword.arg)
        if option in options:
            raise UserError(f"{text!r} gives {option} twice; give it once")
        options[option] = _value(text, option, keyword.value)
    return node.func.id, options


def _expression(text: str) -> ast.expr:
    """The one expression that the text holds."""
    if not isinstance(text, str):
        raise UserError(f"{text!r} is not text; write name or name(key=value, ...)")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _unreadable(text) from None


def _value(text: str, option: str, node: ast.expr) -> Any:
    """A literal, or the bare word itself."""
    if isinstance(node, ast.Name):
        return node.id
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise UserError(
            f"{text!r} gives {option} a value that cannot be read; write a number, a word, a quoted string, "
            "a tuple or a list"
        ) from None


def _unreadable(text: str) -> UserError:
    return UserError(f"cannot read {text!r}; write name or name(key=value, ...), for example label_k(k=2)")


def split_outside_brackets(text: str, separator: str) -> list[str]:
    """Splits at a separator that stands in no bracket; the pieces are stripped.

    >>> split_outside_brackets("fedprox(weight=1e+0) + average()", "+")
    ['fedprox(weight=1e+0)', 'average()']
    """
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == separator and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [piece.strip() for piece in found]


def write_call(name: str, options: Mapping[str, Any]) -> str:
    """What ``parse_call`` reads: words bare, the rest as Python writes it.

    >>> write_call("map", {"transfer": "kd", "alpha": 0.5}), write_call("fedavg", {})
    ('map(transfer=kd, alpha=0.5)', 'fedavg')
    """
    words = {key: v if isinstance(v, str) and v.isidentifier() else repr(v) for key, v in options.items()}
    inside = ", ".join(f"{key}={word}" for key, word in words.items())
    return f"{name}({inside})" if inside else name


def with_defaults(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """All options: those given, and the defaults of the others; a whole number is written as its default is.

    >>> with_defaults({"alpha": 1}, {"alpha": 0.5, "k": 2})
    {'alpha': 1.0, 'k': 2}
    """
    whole = {**defaults, **given}
    return {
        key: float(value) if type(value) is int and isinstance(defaults.get(key), float) else value
        for key, value in whole.items()
    }


def with_options(method: str, options: Mapping[str, Any], term: str = "") -> str:
    """The method with more options, which win over those in the text; ``term`` names the one of a sum they go to.

    >>> with_options("SuPerFed-MM(phase_one=0.4)", {"phase_one": 0.1})
    'superfed_mm(phase_one=0.1)'
    >>> with_options("fedavg + restricted_softmax()", {"alpha": 0.5}, "restricted_softmax")
    'fedavg + restricted_softmax(alpha=0.5)'
    """
    terms = [parse_call(_plain(text)) for text in split_outside_brackets(method, "+")]
    chosen = term or terms[0][0]
    return " + ".join(
        write_call(name, {**given, **(options if name == chosen else {})}) for name, given in terms
    )


def _plain(term: str) -> str:
    name, bracket, rest = term.partition("(")
    return name.strip().lower().replace("-", "_") + bracket + rest
