"""The HTML page of a report: one file with its style, its scripts and its data, which needs no network."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from idiolect.errors import UserError
from idiolect.records import Run, write_atomically
from idiolect.reports.figures.style import COLOURS, DARK_COLOURS
from idiolect.reports.judged_metric import judged_by
from idiolect.reports.page.page_data import as_json, page_data
from idiolect.reports.summary_table import EXPLANATION, plain_rows, summarise

__all__ = ["MOST_BYTES", "page_html", "write_page"]

MOST_BYTES = 8_000_000
SCRIPTS = (
    "state",
    "drawing",
    "markers",
    "axes",
    "inspect",
    "beside",
    "figure",
    "leaderboard",
    "curves",
    "heat_map",
    "change",
    "rows",
    "tradeoff",
    "communication",
    "extras",
    "ranks",
    "partition",
    "provenance",
    "main",
)


def write_page(runs: Iterable[Run], path: str | Path, passed_over: Iterable[str] = ()) -> Path:
    """Writes the page atomically and returns its path.

    Args:
        passed_over: sentences about folders that the report leaves out; the page repeats them.

    Raises:
        UserError: there is no run, the runs are too many for one page, or the file cannot be written.
    """
    content = page_html(list(runs), passed_over).encode()
    if len(content) >= MOST_BYTES:
        raise UserError(
            f"the page would have {len(content) / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f}; give it fewer runs"
        )
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_atomically(path, content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def page_html(runs: list[Run], passed_over: Iterable[str] = ()) -> str:
    """Returns the page as text; the same runs give the same page."""
    document = page_data(runs, passed_over)
    return (
        _environment()
        .get_template("template.html.j2")
        .render(
            title=_title(document),
            document=document,
            rows=plain_rows(summarise(runs), judged_by(runs)),
            explanation=EXPLANATION,
            data=Markup(as_json(document)),
            style=Markup(_source("page.css")),
            scripts=[Markup(_source(f"{name}.js")) for name in SCRIPTS],
            colours=list(zip(COLOURS, DARK_COLOURS, strict=True)),
        )
    )


def _title(document: dict[str, Any]) -> str:
    methods = document["methods"]
    scenes = {", ".join(filter(None, (m["dataset"], m["partition"], m["model"]))) for m in methods}
    scene = f": {scenes.pop()}" if len(scenes) == 1 and any(scenes) else ""
    return f"{len(methods)} method{'s' if len(methods) > 1 else ''}{scene}"


def _source(name: str) -> str:
    return (files("idiolect.reports.page") / "assets" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined)
