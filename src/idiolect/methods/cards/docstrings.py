"""What docstrings say about a method and its parts: equations, meanings of options, deviations from the papers."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from idiolect.core import Method
from idiolect.methods.catalogue import METHODS, PARTS

__all__ = ["arguments", "deviations", "equations", "known_parts", "meaning", "one_line", "paragraphs"]


def paragraphs(thing: Any) -> list[str]:
    return (inspect.getdoc(thing) or "").split("\n\n")


def one_line(text: str) -> str:
    return " ".join(text.split())


def deviations(make: Callable[..., Any]) -> str:
    found = (p for p in paragraphs(make) if p.startswith("Deviations:"))
    return one_line(next(found, "").removeprefix("Deviations:"))


def arguments(thing: Any) -> dict[str, tuple[str, bool]]:
    """Returns, by argument, what the Args paragraph says and whether it says it about this argument alone."""
    text = next((p for p in paragraphs(thing) if p.startswith("Args:")), "")
    found = {}
    for entry in re.split(r"\n    (?=\S)", text)[1:]:
        names, _, said = entry.partition(": ")
        for name in names.split(", "):
            found[name] = one_line(said), "," not in names
    return found


def meaning(make: Callable[..., Any], made: Method, option: str) -> str:
    """Returns what the docstring of the method says about an option.

    Where it refers to another method, that one's words are taken; where it gives no range, the part's are added.
    """
    own, _ = arguments(make).get(option, ("", True))
    referred = re.search(r"(?:see|as in) ([\w-]+)", own)
    other = next((e for e in METHODS.values() if referred and e.label == referred[1].rstrip(".")), None)
    if other is not None and option in arguments(other.make):
        return meaning(other.make, other.make(), option)
    if re.search(r"\[|>|``\w+``(?!`)(?!\.$)", own) and "see ``" not in own:
        return own
    asked = [arguments(place).get(option, ("", False)) for place in _places(made)]
    said = {text for text, alone in asked if alone} - {own}
    own = "" if "see " in own else own
    return _without_doubles(own.rstrip("."), *said) if len(said) == 1 else own


def _without_doubles(own: str, of_part: str) -> str:
    """Returns what a method and its part say about an option; what both say is printed once, and first.

    >>> _without_doubles("upper clip; 1 in the paper", "upper clip in [0, 1].")
    'upper clip in [0, 1]; 1 in the paper.'
    """
    clauses = own.split("; ") if own else []
    rest = [clause for clause in clauses if clause not in of_part]
    if len(rest) == len(clauses):
        return "; ".join([*rest, of_part])
    return "; ".join([of_part.rstrip("."), *rest]) + "."


def _places(made: Method) -> Iterator[Any]:
    """Yields the parts' factories and the classes of the parts package that they are built with."""
    for part in known_parts(made):
        yield PARTS[part]
        for thing in vars(_home(part)).values():
            if inspect.isclass(thing) and thing.__module__.startswith("idiolect.parts."):
                yield thing


def _home(part: str) -> Any:
    """Returns the module of a part; the factory itself where that is code of the user's own, which is no module."""
    return sys.modules.get(PARTS[part].__module__, PARTS[part])


def known_parts(made: Method) -> list[str]:
    return [part.name for part in made.parts if part.name in PARTS]


def equations(made: Method) -> dict[str, str]:
    """Returns the docstrings of the parts' modules, then of the modules that several parts are built from."""
    own = {part: _home(part) for part in known_parts(made)}
    homes = {factory.__module__ for factory in PARTS.values()}
    common = {
        thing.__module__
        for module in own.values()
        for thing in vars(module).values()
        if getattr(thing, "__module__", None) and str(thing.__module__).startswith("idiolect.parts.")
    } - homes
    shared = {name.rpartition(".")[2]: sys.modules[name] for name in sorted(common)}
    return {name: inspect.getdoc(module) or "" for name, module in (own | shared).items()}
