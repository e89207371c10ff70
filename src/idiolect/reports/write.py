"""The whole report of a comparison, as files."""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from idiolect.errors import UserError, refuse_unknown_choice
from idiolect.records import Run, write_atomically
from idiolect.reports.appearance import DPI
from idiolect.reports.clients import clients_data, clients_figure
from idiolect.reports.comparison import intervals_data, pairs_data
from idiolect.reports.curves import curves_data, curves_figure
from idiolect.reports.grouping import group_runs
from idiolect.reports.latex import latex_table
from idiolect.reports.partition_figure import partition_figure
from idiolect.reports.scatter import scatter_data, scatter_figure
from idiolect.reports.special import special_pictures
from idiolect.reports.summary import summarise
from idiolect.reports.table import csv_table, markdown_table, notes_of
from idiolect.reports.text_tables import to_csv
from idiolect.reports.users import users_csv, users_data, users_latex, users_markdown

__all__ = ["FIGURES", "FORMATS", "image", "png", "refuse_unknown_formats", "write_report"]

FIGURES = ("png", "svg", "pdf")
TABLES = ("md", "csv", "tex")
FORMATS = (*FIGURES, *TABLES)


def refuse_unknown_formats(formats: Iterable[str]) -> None:
    for name in formats:
        refuse_unknown_choice("a format", name, FORMATS)


def write_report(
    runs: Iterable[Run],
    folder: str | Path,
    formats: Iterable[str] = ("png", "md", "csv"),
    *,
    special: bool = False,
) -> list[Path]:
    """Writes tables, pictures and the numbers behind the pictures; gives the paths back.

    `table.md`, `table.csv`, `curves.png`, `curves.csv`, `clients.png`, `clients.csv`, and `partition.png`
    where a manifest holds `class_counts` (the first such run is drawn).  Of several methods `scatter.png` and
    `scatter.csv`; of methods on the same clients and seeds `pairs.csv` (paired tests), and `intervals.csv` (bootstrap)
    where a method's seeds have the same clients.  Each file is replaced in one piece.

    Args:
        formats: of the pictures (png, svg, pdf), each in all of those named, and of the table (md, csv, tex); with csv
            the numbers behind the pictures too.
        special: also the pictures that only some runs can give (see `special_pictures`), and the table of users where
            methods have the same ones.
    """
    runs, formats = list(runs), tuple(formats)
    refuse_unknown_formats(formats)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from error
    contents = {**_tables(runs, formats), **_pictures(runs, formats, special)}
    if special:
        contents |= _users(runs, formats)
    if "csv" in formats:
        contents |= _certainty(runs)
    return [write_atomically(folder / name, content) for name, content in contents.items()]


def png(figure: Figure) -> bytes:
    """A figure as PNG, without a date or version in it, so that the same record gives the same file."""
    target = io.BytesIO()
    FigureCanvasAgg(figure).print_png(target, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return target.getvalue()


def image(figure: Figure, format: str) -> bytes:
    """A figure as png, svg or pdf, the same bytes for the same record."""
    if format == "png":
        return png(figure)
    target = io.BytesIO()
    date = "Date" if format == "svg" else "CreationDate"
    with rc_context({"svg.hashsalt": "idiolect", "pdf.fonttype": 42}):
        figure.savefig(target, format=format, metadata={date: None})
    return target.getvalue()


def _tables(runs: list[Run], formats: tuple[str, ...]) -> dict[str, str]:
    summary = summarise(runs)
    makers = {"md": lambda: markdown_table(summary, notes_of(runs)), "csv": lambda: csv_table(summary)}
    makers["tex"] = lambda: latex_table(summary)
    return {f"table.{name}": makers[name]() for name in TABLES if name in formats}


def _users(runs: list[Run], formats: tuple[str, ...]) -> dict[str, str]:
    try:
        table = users_data(runs)
    except UserError:
        return {}
    makers = {"md": users_markdown, "csv": users_csv, "tex": users_latex}
    return {f"users.{name}": makers[name](table) for name in TABLES if name in formats}


def _certainty(runs: list[Run]) -> dict[str, str]:
    """How sure the numbers are, as far as the runs can be paired."""
    found: dict[str, str] = {}
    with suppress(UserError):
        found["intervals.csv"] = to_csv(intervals_data(runs))
    if len(group_runs(runs)) > 1:
        with suppress(UserError):
            found["pairs.csv"] = to_csv(pairs_data(runs))
    return found


def _pictures(runs: list[Run], formats: tuple[str, ...], special: bool) -> dict[str, bytes | str]:
    curves, clients, scatter = curves_data(runs), clients_data(runs), scatter_data(runs)
    methods = list(dict.fromkeys(curves["method"]))
    pictures = {"curves": curves_figure(curves), "clients": clients_figure(clients, methods)}
    numbers = {"curves.csv": curves, "clients.csv": clients}
    if len(scatter) > 1:
        pictures["scatter"], numbers["scatter.csv"] = scatter_figure(scatter, methods), scatter
    counted = next((run.manifest for run in runs if run.manifest.get("class_counts")), None)
    if counted:
        title = ", ".join(str(counted[key]) for key in ("dataset", "partition") if key in counted)
        if len({run.manifest["seed"] for run in runs}) > 1:
            title += f" (seed {counted['seed']})"
        pictures["partition"] = partition_figure(counted["class_counts"], title)
    for name, one in (special_pictures(runs) if special else {}).items():
        pictures[name], numbers[f"{name}.csv"] = one.figure, one.data
    contents: dict[str, bytes | str] = {}
    for name, figure in pictures.items():
        figure.set_dpi(DPI)
        contents |= {f"{name}.{kind}": image(figure, kind) for kind in FIGURES if kind in formats}
    if "csv" in formats:
        contents |= {name: to_csv(table) for name, table in numbers.items()}
    return contents
