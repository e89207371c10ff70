"""Writes the files of a report: tables, figures and the numbers behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from idiolect.errors import UserError, refuse_unknown_choice
from idiolect.records import Run, write_atomically
from idiolect.reports.comparison import (
    intervals_data,
    pairs_data,
    users_csv,
    users_data,
    users_latex,
    users_markdown,
)
from idiolect.reports.figures.calibration_errors import calibration_data, calibration_figure
from idiolect.reports.figures.charts import heat_figure
from idiolect.reports.figures.clients import (
    change_data,
    change_figure,
    clients_data,
    clients_figure,
    clients_heat_data,
    teachers_data,
    teachers_figure,
)
from idiolect.reports.figures.degradation_between_rounds import (
    before_after_data,
    before_after_figure,
    degradation_data,
    degradation_figure,
)
from idiolect.reports.figures.learning_curves import curves_data, curves_figure, targets_data, targets_figure
from idiolect.reports.figures.mixing_profile import profile_data, profile_figure
from idiolect.reports.figures.paper_style import drawn_for, sizes
from idiolect.reports.figures.partition import partition_figure
from idiolect.reports.figures.ranks import ranks_data, ranks_figure
from idiolect.reports.figures.style import DPI, IMAGE_FORMATS, image
from idiolect.reports.figures.tradeoff import scatter_data, scatter_figure
from idiolect.reports.judged_metric import JudgedMetric, judged_by
from idiolect.reports.run_groups import group_runs
from idiolect.reports.summary_table import csv_table, latex_table, markdown_table, notes_of, summarise
from idiolect.reports.text_tables import to_csv

__all__ = [
    "FORMATS",
    "SpecialFigure",
    "refuse_unknown_formats",
    "refuse_unknown_style",
    "special_pictures",
    "write_report",
]

TABLES = ("md", "csv", "tex")
FORMATS = (*IMAGE_FORMATS, *TABLES)
Maker = Callable[[list[Run]], pd.DataFrame]
# takes the numbers, all methods for their colours, and what the runs are judged by
Drawer = Callable[[pd.DataFrame, list[str], JudgedMetric], Figure]
SPECIAL_FIGURES: dict[str, tuple[Maker, Drawer]] = {
    "heat-map": (
        clients_heat_data,
        lambda data, _, metric: heat_figure(data, column_label="Client", columns=1, metric=metric),
    ),
    "change": (change_data, lambda data, _, metric: change_figure(data, metric=metric)),
    "ranks": (ranks_data, ranks_figure),
    "calibration": (calibration_data, lambda data, methods, _: calibration_figure(data, methods)),
    "targets": (targets_data, targets_figure),
    "zigzag": (before_after_data, lambda data, _, metric: before_after_figure(data, y_label=metric.axis)),
    "degradation": (degradation_data, degradation_figure),
    "profile": (
        profile_data,
        lambda data, methods, metric: profile_figure(data, lines=methods, metric=metric),
    ),
    "teachers": (teachers_data, lambda data, methods, _: teachers_figure(data, methods)),
}


def refuse_unknown_formats(formats: Iterable[str]) -> None:
    """Raises a UserError that names the first unknown format."""
    for name in formats:
        refuse_unknown_choice("a format", name, FORMATS)


def refuse_unknown_style(style: str | None, width: str, formats: Iterable[str]) -> None:
    """Raises a UserError for an unknown venue or width, or a venue where no picture is asked for."""
    with drawn_for(style, width):
        pass
    if style is not None and not set(formats) & set(IMAGE_FORMATS):
        raise UserError(
            f"--style {style} is for pictures, and none is asked for; add --format pdf (or png, svg)"
        )


def write_report(
    runs: Iterable[Run],
    folder: str | Path,
    formats: Iterable[str] = ("png", "md", "csv"),
    *,
    special: bool = False,
    style: str | None = None,
    width: str = "column",
) -> list[Path]:
    """Writes the tables, the figures and the numbers behind the figures, and returns the paths.

    The files are `table.md`, `table.csv`, `curves.png`, `curves.csv`, `clients.png`, `clients.csv`, and `partition.png`
    where a manifest holds `class_counts` that are not all zero, as a regression's are (the first such run is drawn).
    Several methods add `scatter.png` and `scatter.csv`; methods on the same clients and seeds add `pairs.csv` (paired
    tests); methods whose seeds have the same clients add `intervals.csv` (bootstrap).  Each file is written atomically.

    Args:
        formats: formats of the figures (png, svg, pdf) and of the tables (md, csv, tex); csv also writes the numbers
            behind the figures.
        special: whether to add the figures that only some runs allow (see `special_pictures`), and the table of users
            where all methods have the same users.
        style: the venue whose fonts and widths the figures have, one of neurips, icml, ieee and acm.
        width: of a column of that venue, or `full` for the whole text.
    """
    runs, formats = list(runs), tuple(formats)
    refuse_unknown_formats(formats)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from error
    with drawn_for(style, width):
        pictures = _pictures(runs, formats, special)
    contents = {**_tables(runs, formats), **pictures}
    if special:
        contents |= _users(runs, formats)
    if "csv" in formats:
        contents |= _certainty(runs)
    return [write_atomically(folder / name, content) for name, content in contents.items()]


def _tables(runs: list[Run], formats: tuple[str, ...]) -> dict[str, str]:
    summary, metric = summarise(runs), judged_by(runs)
    makers = {
        "md": lambda: markdown_table(summary, notes_of(runs), metric),
        "csv": lambda: csv_table(summary),
    }
    makers["tex"] = lambda: latex_table(summary, metric)
    return {f"table.{name}": makers[name]() for name in TABLES if name in formats}


def _users(runs: list[Run], formats: tuple[str, ...]) -> dict[str, str]:
    try:
        table = users_data(runs)
    except UserError:
        return {}
    metric = judged_by(runs)
    makers = {"md": lambda: users_markdown(table, metric), "csv": lambda: users_csv(table)}
    makers["tex"] = lambda: users_latex(table, metric)
    return {f"users.{name}": makers[name]() for name in TABLES if name in formats}


def _certainty(runs: list[Run]) -> dict[str, str]:
    """Returns confidence intervals and paired tests as CSV, where the runs can be paired."""
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
    metric = judged_by(runs)
    pictures = {
        "curves": curves_figure(curves, metric),
        "clients": clients_figure(clients, methods, metric),
    }
    numbers = {"curves.csv": curves, "clients.csv": clients}
    if len(scatter) > 1:
        pictures["scatter"], numbers["scatter.csv"] = scatter_figure(scatter, methods, metric), scatter
    counted = next((run.manifest for run in runs if np.any(run.manifest.get("class_counts", []))), None)
    if counted:
        title = ", ".join(str(counted[key]) for key in ("dataset", "partition") if key in counted)
        if len({run.manifest["seed"] for run in runs}) > 1:
            title += f" (seed {counted['seed']})"
        pictures["partition"] = partition_figure(counted["class_counts"], title)
    for name, one in (special_pictures(runs) if special else {}).items():
        pictures[name], numbers[f"{name}.csv"] = one.figure, one.data
    contents: dict[str, bytes | str] = {}
    for name, figure in pictures.items():
        figure.set_dpi(sizes().dpi or DPI)
        contents |= {f"{name}.{kind}": image(figure, kind) for kind in IMAGE_FORMATS if kind in formats}
    if "csv" in formats:
        contents |= {name: to_csv(table) for name, table in numbers.items()}
    return contents


class SpecialFigure(NamedTuple):
    """A figure and the numbers behind it."""

    figure: Figure
    data: pd.DataFrame


def special_pictures(runs: Iterable[Run]) -> dict[str, SpecialFigure]:
    """Returns by name the figures that the runs have the measurements for, and leaves out the others."""
    runs, found = list(runs), {}
    methods, metric = list(group_runs(runs)), judged_by(runs)
    for name, (make, draw) in SPECIAL_FIGURES.items():
        try:
            data = make(runs)
        except UserError:
            continue
        if len(data):
            found[name] = SpecialFigure(draw(data, methods, metric), data)
    return found
