"""Writes the files of a report: tables, figures and the numbers behind them."""

from __future__ import annotations

import re
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
    certainty_of,
    intervals_data,
    newcomers_csv,
    newcomers_data,
    newcomers_latex,
    newcomers_markdown,
    pairs_data,
    users_csv,
    users_data,
    users_latex,
    users_markdown,
)
from idiolect.reports.disturbances import (
    disturbances_csv,
    disturbances_data,
    disturbances_latex,
    disturbances_markdown,
)
from idiolect.reports.diverged_methods import ended_runs
from idiolect.reports.figures.calibration_errors import (
    calibration_data,
    calibration_figure,
    calibration_markdown,
    calibration_table,
    reliability_data,
    reliability_figure,
)
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
from idiolect.reports.findings import findings_of
from idiolect.reports.judged_metric import JudgedMetric, judged_by
from idiolect.reports.run_groups import group_runs, scenes_of
from idiolect.reports.scene_matrix import matrix_table, scene_matrix
from idiolect.reports.scene_verdict import best_first, scene_verdict
from idiolect.reports.summary_table import csv_table, latex_table, markdown_table, notes_of, summarise
from idiolect.reports.text_tables import to_csv, without_html
from idiolect.statistics import LAST, Reading, as_reading

__all__ = [
    "FORMATS",
    "SpecialFigure",
    "refuse_unknown_formats",
    "refuse_unknown_style",
    "special_pictures",
    "write_report",
]

TABLES = ("md", "csv", "tex")
LONGEST_FOLDER = 60  # letters of a scene's folder
FORMATS = (*IMAGE_FORMATS, *TABLES)
Maker = Callable[[list[Run], Reading], pd.DataFrame]
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
    "reliability": (
        lambda runs, _: reliability_data(runs),
        lambda data, methods, _: reliability_figure(data, methods),
    ),
    "targets": (lambda runs, _: targets_data(runs), targets_figure),
    "zigzag": (
        lambda runs, _: before_after_data(runs),
        lambda data, _, metric: before_after_figure(data, y_label=metric.axis),
    ),
    "degradation": (lambda runs, _: degradation_data(runs), degradation_figure),
    "profile": (
        lambda runs, _: profile_data(runs),
        lambda data, methods, metric: profile_figure(data, lines=methods, metric=metric),
    ),
    "teachers": (
        lambda runs, _: teachers_data(runs),
        lambda data, methods, _: teachers_figure(data, methods),
    ),
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
    reading: Reading | str = LAST,
) -> list[Path]:
    """Writes the tables, the figures and the numbers behind the figures, and returns the paths.

    The files are `table.md`, `table.csv`, `curves.png`, `curves.csv`, `clients.png`, `clients.csv`, and `partition.png`
    where a manifest holds `class_counts` that are not all zero, as a regression's are (the first such run is drawn).
    Several methods add `scatter.png` and `scatter.csv`; `intervals.csv` has the interval of every mean, and `pairs.csv`
    compares methods on the same scene, seeds and clients.  Runs with newcomers add `newcomers.md` and `newcomers.csv`;
    methods with and without disturbances add `disturbances.md` and `disturbances.csv`.
    `table.md` begins with what was found in words.  Methods stand in the order of their values, the best first; those
    that diverged stand in the tables alone.  Runs of several scenes have their figures in a folder for each scene, and
    `scenes.md`, `scenes.csv` and `ranks.png` beside the folders.  Each file is written atomically.

    Args:
        formats: formats of the figures (png, svg, pdf) and of the tables (md, csv, tex); csv also writes the numbers
            behind the figures.
        special: whether to add the figures that only some runs allow (see `special_pictures`), the table of users
            where all methods have the same users, and that of calibration where it was counted.
        style: the venue whose fonts and widths the figures have, one of neurips, icml, ieee and acm.
        width: of a column of that venue, or `full` for the whole text.
        reading: which evaluations are final values: `last`, `mean(5)` or `validated`; see `statistics.Reading`.
    """
    runs, formats, reading = list(runs), tuple(formats), as_reading(reading)
    refuse_unknown_formats(formats)
    # first, since it refuses what cannot be read, before a folder is made
    tables = _tables(runs, formats, reading)
    runs = best_first(ended, reading) if (ended := ended_runs(runs)) else []
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from error
    contents: dict[str, bytes | str] = {**tables}
    if runs:
        with drawn_for(style, width):
            contents |= _pictures_by_scene(runs, formats, special, reading)
        contents |= {**_newcomers(runs, formats), **_disturbances(runs, formats, reading)}
        if special:
            contents |= {**_users(runs, formats, reading), **_calibration(runs, formats)}
        if "csv" in formats:
            contents |= _certainty(runs, reading)
    for name in contents:
        (folder / name).parent.mkdir(exist_ok=True)
    return [
        write_atomically(folder / name, without_html(str(content)) if name.endswith(".md") else content)
        for name, content in contents.items()
    ]


def _tables(runs: list[Run], formats: tuple[str, ...], reading: Reading) -> dict[str, str]:
    summary, metric = summarise(runs, reading), judged_by(runs)
    notes = [*notes_of(runs, reading), *certainty_of(runs, reading)]
    ended = ended_runs(runs)
    scenes = scenes_of(ended) if ended else {}
    verdicts = {name: scene_verdict(groups, reading) for name, groups in scenes.items()}
    found = "".join(f"{finding}\n\n" for finding in findings_of(scenes, verdicts))
    makers = {
        "md": lambda: f"{found}{markdown_table(summary, notes, metric)}",
        "csv": lambda: csv_table(summary),
        "tex": lambda: latex_table(summary, metric),
    }
    tables = {f"table.{name}": makers[name]() for name in TABLES if name in formats}
    if len(scenes) > 1:
        matrix = scene_matrix(verdicts)
        tables |= {f"scenes.{name}": matrix_table(matrix, name) for name in TABLES if name in formats}
    return tables


def _users(runs: list[Run], formats: tuple[str, ...], reading: Reading) -> dict[str, str]:
    tables, metric = users_data(runs, reading), judged_by(runs)
    if not tables:
        return {}
    makers = {"md": lambda: users_markdown(tables, metric, reading), "csv": lambda: users_csv(tables)}
    makers["tex"] = lambda: users_latex(tables, metric, reading)
    return {f"users.{name}": makers[name]() for name in TABLES if name in formats}


def _calibration(runs: list[Run], formats: tuple[str, ...]) -> dict[str, str]:
    """Returns the table of calibration where runs have counts by confidence; its CSV replaces that of the bars."""
    table = calibration_table(runs)
    if table.empty:
        return {}
    makers = {"md": lambda: calibration_markdown(table), "csv": lambda: to_csv(table)}
    return {f"calibration.{name}": makers[name]() for name in ("md", "csv") if name in formats}


def _newcomers(runs: list[Run], formats: tuple[str, ...]) -> dict[str, str]:
    table, metric = newcomers_data(runs), judged_by(runs)
    if table.empty:
        return {}
    makers = {"md": lambda: newcomers_markdown(table, metric), "csv": lambda: newcomers_csv(table)}
    makers["tex"] = lambda: newcomers_latex(table, metric)
    return {f"newcomers.{name}": makers[name]() for name in TABLES if name in formats}


def _disturbances(runs: list[Run], formats: tuple[str, ...], reading: Reading) -> dict[str, str]:
    table, metric = disturbances_data(runs, reading), judged_by(runs)
    if table.empty:
        return {}
    makers = {"md": lambda: disturbances_markdown(table, metric), "csv": lambda: disturbances_csv(table)}
    makers["tex"] = lambda: disturbances_latex(table, metric)
    return {f"disturbances.{name}": makers[name]() for name in TABLES if name in formats}


def _certainty(runs: list[Run], reading: Reading) -> dict[str, str]:
    """Returns confidence intervals, and paired comparisons where runs can be paired, as CSV."""
    found = {"intervals.csv": to_csv(intervals_data(runs, reading))}
    with suppress(UserError):
        found["pairs.csv"] = to_csv(pairs_data(runs, reading))
    return found


def _pictures_by_scene(
    runs: list[Run], formats: tuple[str, ...], special: bool, reading: Reading
) -> dict[str, bytes | str]:
    """Returns the pictures of one scene, or those of several in a folder each and their ranks beside the folders."""
    scenes = scenes_of(runs)
    if len(scenes) == 1:
        return _pictures(runs, formats, special, reading)
    found: dict[str, bytes | str] = {}
    for place, (name, groups) in enumerate(scenes.items(), 1):
        here = [run for group in groups.values() for run in group]
        folder = f"{place}-{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-')[:LONGEST_FOLDER]}"
        drawn = _pictures(here, formats, special, reading)
        found |= {f"{folder}/{file}": content for file, content in drawn.items()}
    with suppress(UserError):
        data = ranks_data(runs, reading)
        found |= _files({"ranks": ranks_figure(data, metric=judged_by(runs))}, {"ranks.csv": data}, formats)
    return found


def _pictures(
    runs: list[Run], formats: tuple[str, ...], special: bool, reading: Reading
) -> dict[str, bytes | str]:
    curves, clients, scatter = curves_data(runs), clients_data(runs, reading), scatter_data(runs, reading)
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
    for name, one in (special_pictures(runs, reading) if special else {}).items():
        pictures[name], numbers[f"{name}.csv"] = one.figure, one.data
    return _files(pictures, numbers, formats)


def _files(
    pictures: dict[str, Figure], numbers: dict[str, pd.DataFrame], formats: tuple[str, ...]
) -> dict[str, bytes | str]:
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


def special_pictures(runs: Iterable[Run], reading: Reading = LAST) -> dict[str, SpecialFigure]:
    """Returns by name the figures that the runs have the measurements for, and leaves out the others.

    Args:
        reading: which evaluations are the final values of those that show them.
    """
    runs, found = list(runs), {}
    methods, metric = list(group_runs(runs)), judged_by(runs)
    for name, (make, draw) in SPECIAL_FIGURES.items():
        try:
            data = make(runs, reading)
        except UserError:
            continue
        if len(data):
            found[name] = SpecialFigure(draw(data, methods, metric), data)
    return found
