"""An extension of griffe, which reads docstrings for the site: equations and examples stand in blocks of code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(
    r"^([ \t]*)>>> .*(?:\n[ \t]*\S.*)*", re.MULTILINE
)  # up to an empty line, as doctest reads it


class Docstrings(Extension):
    """Keeps the lines of equations apart, and fences examples, which Markdown would take for quotations."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        if obj.is_module and isinstance(obj.filepath, Path):
            obj.docstring.value = as_it_stands(obj.filepath)
        obj.docstring.value = EXAMPLE.sub(fenced, obj.docstring.value)


def as_it_stands(path: Path) -> str:
    """Returns a file's docstring with the indentation that marks its equations, which cleaning would take away."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")), clean=False) or "").strip()


def fenced(found: re.Match[str]) -> str:
    return f"{found[1]}```pycon\n{found[0]}\n{found[1]}```"
