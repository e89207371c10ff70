"""Lines in panels side by side, with bands where there is a spread."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from idiolect.reports.appearance import appearances, wrapped
from idiolect.reports.curve_marks import line_style
from idiolect.reports.panels import label_panel, legend_beside, make_panels

__all__ = ["lines_figure"]


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
        x_label: what x is.
        title: above all panels.
        mark: where on x an upright line stands.
        lines: all lines of the report in order, so that each keeps its colour from figure to figure.
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
