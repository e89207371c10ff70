"""An extension of griffe, which reads docstrings for the site: equations and examples stand in blocks of code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

# An example up to an empty line, as doctest reads it; an argument whose description begins with its range.
EXAMPLE = re.compile(r"^([ \t]*)>>> .*(?:\n[ \t]*\S.*)*", re.MULTILINE)
BOUND = re.compile(r"^([ \t]+\w[\w, ]*: )>", re.MULTILINE)
EQUATION = re.compile(r" (=|<-|~) ")


class Docstrings(Extension):
    """Keeps lines of equations apart, and examples and bounds from being taken for quotations, by their ``>``."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        if obj.path.startswith("idiolect.parts.") and obj.is_module:
            obj.docstring.value = with_equations(obj.docstring.value)
        obj.docstring.value = EXAMPLE.sub(fenced, BOUND.sub(r"\1\\>", obj.docstring.value))


def with_equations(text: str) -> str:
    """Returns the docstring of a part's file with every paragraph that has an equation as a block."""
    first, *others = text.split("\n\n")
    blocks = [f"```text\n{each}\n```" if EQUATION.search(each) else each for each in others]
    return "\n\n".join([first, *blocks])


def fenced(found: re.Match[str]) -> str:
    return f"{found[1]}```pycon\n{found[0]}\n{found[1]}```"
