"""A number for every pair of two things: clients against methods, or settings against settings (FedPHP, figure 7)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from idiolect.records import Run
from idiolect.reports.appearance import INK, wrapped
from idiolect.reports.clients import clients_data
from idiolect.reports.panels import make_panels

__all__ = ["clients_heat_data", "heat_figure"]

MAP = "cividis"  # reads the same with any colour vision
MOST_WRITTEN = 12  # columns whose cells hold their number
MOST_NAMED = 25


def clients_heat_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Clients against methods: columns `panel`, `row` (the method), `column` (the client), `value` in percent."""
    data = clients_data(runs)
    means = 100 * data.groupby(["method", "client"], sort=False)["accuracy"].mean()
    found = means.rename("value").reset_index().rename(columns={"method": "row", "client": "column"})
    return found.assign(panel="Final accuracy of every client (%)")[["panel", "row", "column", "value"]]


def heat_figure(
    points: pd.DataFrame, row_label: str = "", column_label: str = "", title: str = "", *, columns: int = 2
) -> Figure:
    """Draws one map for each `panel`; cells hold their number where there is room, and the best is bold.

    Args:
        points: columns `panel`, `row`, `column`, `value`.
        columns: panels in a row.
    """
    panels = list(dict.fromkeys(points["panel"]))
    rows, places = points["row"].nunique(), points["column"].nunique()
    size = (float(np.clip(0.62 * places + 2.0, 4.0, 12.0)), float(np.clip(0.42 * rows + 1.4, 2.6, 12.0)))
    figure, grid = make_panels(len(panels), title, columns=columns, size=size)
    for axes, panel in zip(grid, panels, strict=True):
        here = points[points["panel"] == panel]
        order = {"index": list(dict.fromkeys(here["row"])), "columns": list(dict.fromkeys(here["column"]))}
        table = here.pivot_table(index="row", columns="column", values="value").reindex(**order)
        image = _cells(axes, table)
        axes.set_title(str(panel), fontsize=10, loc="left", color=INK)
        axes.set_xlabel(column_label, fontsize=9, color=INK)
        axes.set_ylabel(row_label, fontsize=9, color=INK)
        figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def _cells(axes: Axes, table: pd.DataFrame) -> AxesImage:
    values = table.to_numpy(float)
    image = axes.imshow(values, cmap=MAP, aspect="auto")
    axes.set_yticks(range(len(table)), [wrapped(str(name)) for name in table.index])
    every = -(-table.shape[1] // MOST_NAMED)
    axes.set_xticks(range(0, table.shape[1], every), [str(name) for name in table.columns[::every]])
    axes.tick_params(length=0, labelsize=9, colors=INK)
    if table.shape[1] <= MOST_WRITTEN:
        middle = (np.nanmin(values) + np.nanmax(values)) / 2
        best = np.nanmax(values)
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                _write(axes, row, column, value, light=value < middle, best=value == best)
    return image


def _write(axes: Axes, row: int, column: int, value: float, *, light: bool, best: bool) -> None:
    axes.text(
        column,
        row,
        f"{value:.1f}",
        ha="center",
        va="center",
        fontsize=8,
        color="white" if light else "black",
        fontweight="bold" if best else "normal",
    )
