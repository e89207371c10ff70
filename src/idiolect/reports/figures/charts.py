"""Charts for any numbers: lines, bars and heat maps, in panels side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from idiolect.reports.figures.paper_style import sizes
from idiolect.reports.figures.style import (
    INK,
    LINES,
    Appearance,
    appearances,
    label_panel,
    legend_beside,
    make_panels,
    set_title,
    wrapped,
)
from idiolect.reports.judged_metric import ACCURACY, JudgedMetric

__all__ = ["bars_figure", "heat_figure", "line_style", "lines_figure"]

HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----")  # of bars, for each of LINES
GROUP_WIDTH = 0.8  # width of all bars at one x, as a share of the distance to the next
MOST_BARS_NAMED = 24
COLOUR_MAP = "cividis"  # readable with any colour vision
MOST_COLUMNS_WRITTEN = 12  # with more columns, cells do not show their numbers
MOST_COLUMNS_NAMED = 25


def line_style(look: Appearance) -> dict[str, Any]:
    """Returns the keyword arguments with which matplotlib draws a method's line, in panels and legend."""
    return {
        "color": look.colour,
        "linestyle": look.line,
        "linewidth": 1.7 * sizes().scale,
        "marker": look.marker,
        "markersize": 6 * sizes().scale,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6 * sizes().scale,
    }


def lines_figure(
    points: pd.DataFrame,
    x_label: str,
    title: str = "",
    *,
    y_label: str = "",
    mark: float | None = None,
    lines: Iterable[str] = (),
) -> Figure:
    """Draws one panel for each `panel`, one line for each `line`.

    Args:
        points: columns `panel`, `line`, `x`, `value` and, for bands of one SD, `sd`.
        x_label: label of the x axis.
        title: text above all panels.
        mark: x value of a vertical line.
        lines: all lines of the report in order, so that each has the same colour in every figure.
    """
    panels, looks = list(dict.fromkeys(points["panel"])), appearances([*lines, *points["line"]])
    figure, grid = make_panels(len(panels), title)
    for axes, panel in zip(grid, panels, strict=True):
        for label, line in points[points["panel"] == panel].groupby("line", sort=False):
            style = line_style(looks[label])
            axes.plot(line["x"], line["value"], label=wrapped(str(label)), **style, markevery=0.2)
            if "sd" in line and line["sd"].notna().any():
                low, high = line["value"] - line["sd"], line["value"] + line["sd"]
                axes.fill_between(line["x"], low, high, color=looks[label].colour, alpha=0.13, linewidth=0)
        label_panel(axes, str(panel), x_label, y_label)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=bool((points["x"] % 1 == 0).all())))
    legend_beside(figure, [line for axes in grid for line in axes.get_lines()])
    if mark is not None:
        for axes in grid:
            axes.axvline(mark, color="#777777", linestyle=(0, (4, 3)), linewidth=1.2)
    return figure


def bars_figure(
    points: pd.DataFrame, x_label: str, y_label: str, title: str = "", *, lines: Iterable[str] = ()
) -> Figure:
    """Draws one panel for each `panel`, at each `x` one bar for each `line`.

    Args:
        points: columns `panel`, `line`, `x` (a name or a number), `value` and, for error bars, `sd`.
        lines: all lines of the report in order, so that each has the same colour in every figure.
    """
    panels, looks = list(dict.fromkeys(points["panel"])), appearances([*lines, *points["line"]])
    figure, grid = make_panels(len(panels), title)
    for axes, panel in zip(grid, panels, strict=True):
        here = points[points["panel"] == panel]
        places = {x: place for place, x in enumerate(dict.fromkeys(here["x"]))}
        groups = list(here.groupby("line", sort=False))
        width = GROUP_WIDTH / max(1, len(groups))
        for number, (label, line) in enumerate(groups):
            at = line["x"].map(places).to_numpy(float) + (number - (len(groups) - 1) / 2) * width
            spread = line["sd"] if "sd" in line and line["sd"].notna().any() else None
            axes.bar(
                at,
                line["value"],
                width,
                yerr=spread,
                ecolor="#777777",
                color=looks[label].colour,
                hatch=HATCHES[LINES.index(looks[label].line)],
                edgecolor="white",
                linewidth=0,
                label=wrapped(str(label)),
            )
        every = -(-len(places) // MOST_BARS_NAMED)
        named = list(places)[::every]
        axes.set_xticks(np.arange(0, len(places), every), [str(name) for name in named])
        label_panel(axes, str(panel), x_label, y_label, grid="y")
    drawn = [bars for axes in grid for bars in axes.containers]
    legend_beside(figure, [bars for bars in drawn if not str(bars.get_label()).startswith("_")])
    return figure


def heat_figure(
    points: pd.DataFrame,
    row_label: str = "",
    column_label: str = "",
    title: str = "",
    *,
    columns: int = 2,
    metric: JudgedMetric = ACCURACY,
) -> Figure:
    """Draws one heat map for each `panel`; cells show their number where there is room, the best in bold.

    Args:
        points: columns `panel`, `row`, `column`, `value`.
        columns: the largest number of panels in a row.
        metric: what the values are of.
    """
    panels = list(dict.fromkeys(points["panel"]))
    rows, places = points["row"].nunique(), points["column"].nunique()
    size = (float(np.clip(0.62 * places + 2.0, 4.0, 12.0)), float(np.clip(0.42 * rows + 1.4, 2.6, 12.0)))
    paper = 0.7 + 0.17 * rows
    figure, grid = make_panels(len(panels), title, columns=columns, size=size, paper_height=paper)
    for axes, panel in zip(grid, panels, strict=True):
        here = points[points["panel"] == panel]
        order = {"index": list(dict.fromkeys(here["row"])), "columns": list(dict.fromkeys(here["column"]))}
        table = here.pivot_table(index="row", columns="column", values="value").reindex(**order)
        image = _draw_cells(axes, table, metric)
        set_title(axes, str(panel), min(10, sizes().title))
        axes.set_xlabel(column_label, fontsize=sizes().text, color=INK)
        axes.set_ylabel(row_label, fontsize=sizes().text, color=INK)
        figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def _draw_cells(axes: Axes, table: pd.DataFrame, metric: JudgedMetric) -> AxesImage:
    values = table.to_numpy(float)
    image = axes.imshow(values, cmap=COLOUR_MAP, aspect="auto")
    axes.set_yticks(range(len(table)), [wrapped(str(name)) for name in table.index])
    named = MOST_COLUMNS_WRITTEN if sizes().width else MOST_COLUMNS_NAMED
    written = min(MOST_COLUMNS_WRITTEN, int(2 * sizes().width)) if sizes().width else MOST_COLUMNS_WRITTEN
    every = -(-table.shape[1] // named)
    axes.set_xticks(range(0, table.shape[1], every), [str(name) for name in table.columns[::every]])
    axes.tick_params(length=0, labelsize=sizes().text, colors=INK)
    if table.shape[1] <= written:
        middle = (np.nanmin(values) + np.nanmax(values)) / 2
        best = np.nanmax(values) if metric.higher_is_better else np.nanmin(values)
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                text = metric.scaled_text(value)
                _write_number(axes, row, column, text, light=value < middle, best=value == best)
    return image


def _write_number(axes: Axes, row: int, column: int, text: str, *, light: bool, best: bool) -> None:
    axes.text(
        column,
        row,
        text,
        ha="center",
        va="center",
        fontsize=sizes().small - (1 if sizes().width else 0),
        color="white" if light else "black",
        fontweight="bold" if best else "normal",
    )
