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
from idiolect.reports.diverged_methods import divergence_notes, ended_runs
from idiolect.reports.figures.style import COLOURS, DARK_COLOURS
from idiolect.reports.judged_metric import judged_by
from idiolect.reports.page.page_data import as_json, page_data
from idiolect.reports.run_groups import scenes_of
from idiolect.reports.summary_table import by_scene, explanation_of, plain_rows, summarise
from idiolect.statistics import LAST, Reading

__all__ = ["MOST_BYTES", "page_html", "write_page"]

MOST_BYTES = 8_000_000
SCRIPTS = (
    "state",
    "drawing",
    "markers",
    "axes",
    "inspect",
    "picture_files",
    "beside",
    "scenes",
    "figure",
    "matrix",
    "disturbances",
    "leaderboard",
    "curves",
    "differences",
    "heat_map",
    "change",
    "rows",
    "newcomers",
    "reliability",
    "confusion",
    "tradeoff",
    "communication",
    "spending",
    "extras",
    "ranks",
    "partition",
    "provenance",
    "main",
)


def write_page(
    runs: Iterable[Run], path: str | Path, passed_over: Iterable[str] = (), reading: Reading = LAST
) -> Path:
    """Writes the page atomically and returns its path.

    Args:
        passed_over: sentences about folders that the report leaves out; the page repeats them.
        reading: the rule by which final values are read.

    Raises:
        UserError: there is no run, the runs are too many for one page, or the file cannot be written.
    """
    content = page_html(list(runs), passed_over, reading).encode()
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


def page_html(runs: list[Run], passed_over: Iterable[str] = (), reading: Reading = LAST) -> str:
    """Returns the page as text; the same runs give the same page."""
    ended = ended_runs(runs)
    diverged = divergence_notes(runs) if len(ended) < len(runs) else []
    if not ended:
        raise UserError(f"there is no run to draw: {'; '.join(diverged) or 'no finished run was given'}")
    document = page_data(ended, [*passed_over, *diverged], reading)
    return (
        _environment()
        .get_template("template.html.j2")
        .render(
            title=_title(document),
            document=document,
            runs=len(runs),
            tables=_tables(runs, reading),
            data=Markup(as_json(document)),
            style=Markup(_source("page.css")),
            scripts=[Markup(_source(f"{name}.js")) for name in SCRIPTS],
            colours=list(zip(COLOURS, DARK_COLOURS, strict=True)),
        )
    )


def _tables(runs: list[Run], reading: Reading) -> list[tuple[str, list[list[str]], str]]:
    """Returns heading, rows and explanation of the table of every scene, for readers without scripts."""
    found = []
    for groups in scenes_of(runs).values():
        here = [run for group in groups.values() for run in group]
        summary = summarise(here, reading)
        heading, _ = next(iter(by_scene(summary)))
        found.append((heading, plain_rows(summary, judged_by(here)), explanation_of(summary)))
    return found


def _title(document: dict[str, Any]) -> str:
    scenes = document["scenes"]
    methods = {method["label"] for scene in scenes for method in scene["methods"]}
    count = f"{len(methods)} method{'s' if len(methods) > 1 else ''}"
    return f"{count}: {scenes[0]['name']}" if len(scenes) == 1 else f"{count} in {len(scenes)} scenes"


def _source(name: str) -> str:
    return (files("idiolect.reports.page") / "assets" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined)
