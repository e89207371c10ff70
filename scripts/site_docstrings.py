"""An extension of griffe, which reads docstrings for the site.

Equations and examples stand in blocks of code, and the values that parts exchange list their fields with the comments
that stand beside these in the code.  So do the names that modules of the core give to types and constants.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from griffe import Attribute, Class, Docstring, Extension, Object

# An example up to an empty line, as doctest reads it; an argument whose description begins with its range.
EXAMPLE = re.compile(r"^([ \t]*)>>> .*(?:\n[ \t]*\S.*)*", re.MULTILINE)
BOUND = re.compile(r"^([ \t]+\w[\w, ]*: )>", re.MULTILINE)
EQUATION = re.compile(r" (=|<-|~) ")
COMMENT = re.compile(r"# (.+)")


class Docstrings(Extension):
    """Keeps lines of equations apart, and examples and bounds from being taken for quotations, by their ``>``."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        of_core = obj.path.startswith("idiolect.core.")
        if isinstance(obj, Class) and of_core:
            obj.docstring = with_fields(obj)
        if isinstance(obj, Attribute) and of_core and "module-attribute" in obj.labels:
            obj.docstring = obj.docstring or with_comment(obj)
        if obj.docstring is None:
            return
        if obj.path.startswith("idiolect.parts.") and obj.is_module:
            obj.docstring.value = with_equations(obj.docstring.value)
        obj.docstring.value = EXAMPLE.sub(fenced, BOUND.sub(r"\1\\>", obj.docstring.value))


def with_fields(held: Class) -> Docstring | None:
    """Returns the docstring of a class with a section that lists its fields, where it says nothing of them itself."""
    text = "" if held.docstring is None else held.docstring.value
    fields = {
        name: member
        for name, member in held.attributes.items()
        if member.annotation is not None and "property" not in member.labels and member.lineno is not None
    }
    if not fields or "Args:" in text:
        return held.docstring
    lines = Path(str(held.filepath)).read_text(encoding="utf-8").splitlines()
    listed = [
        f"    {name}: {comment_on(lines, member.lineno, member.endlineno)}" for name, member in fields.items()
    ]
    return Docstring("\n".join([text, "", "Attributes:", *listed]).lstrip(), parent=held, parser="google")


def with_comment(named: Attribute) -> Docstring | None:
    """Returns the comment on a name that a module of the core gives, as a sentence."""
    if named.lineno is None or named.endlineno is None or named.name == "__all__":
        return None
    lines = Path(str(named.filepath)).read_text(encoding="utf-8").splitlines()
    said = comment_on(lines, named.lineno, named.endlineno)
    return None if said == "-" else Docstring(f"{said[0].upper()}{said[1:].removesuffix('.')}.", parent=named)


def comment_on(lines: list[str], first: int, last: int) -> str:
    """Returns the comment beside the code of some lines, or else the one above them; a dash where there is none."""
    beside = [found[1] for line in lines[first - 1 : last] if (found := COMMENT.search(line))]
    above = COMMENT.match(lines[first - 2].strip())
    return " ".join(beside) or (above[1] if above else "-")


def with_equations(text: str) -> str:
    """Returns the docstring of a part's file with every paragraph that has an equation as a block."""
    first, *others = text.split("\n\n")
    blocks = [f"```text\n{each}\n```" if EQUATION.search(each) else each for each in others]
    return "\n\n".join([first, *blocks])


def fenced(found: re.Match[str]) -> str:
    return f"{found[1]}```pycon\n{found[0]}\n{found[1]}```"
