"""Lines in panels side by side, with bands where there is a spread."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from idiolect.reports.appearance import DPI, INK, appearances, tidy, wrapped
from idiolect.reports.curve_marks import line_style

__all__ = ["lines_figure"]

COLUMNS = 3


def lines_figure(points: pd.DataFrame, x_label: str, title: str = "") -> Figure:
    """Draws one panel for each `panel`, one line for each `line`.

    Args:
        points: columns `panel`, `line`, `x`, `value` and, for bands of one SD, `sd`.
        x_label: what x is.
        title: above all panels.
    """
    panels, looks = list(dict.fromkeys(points["panel"])), appearances(points["line"])
    width = min(COLUMNS, len(panels))
    height = -(-len(panels) // width)
    figure = Figure(figsize=(4.2 * width + 2.5, 3.4 * height), layout="constrained", dpi=DPI)
    grid = figure.subplots(height, width, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, panel in zip(grid.flat, panels, strict=False):
        for label, line in points[points["panel"] == panel].groupby("line", sort=False):
            style = line_style(looks[label])
            axes.plot(line["x"], line["value"], label=wrapped(str(label)), **style, markevery=0.2)
            if "sd" in line and line["sd"].notna().any():
                low, high = line["value"] - line["sd"], line["value"] + line["sd"]
                axes.fill_between(line["x"], low, high, color=looks[label].colour, alpha=0.13, linewidth=0)
        axes.set_title(panel, fontsize=10, loc="left", color=INK)
        axes.set_xlabel(x_label, fontsize=9, color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=bool((points["x"] % 1 == 0).all())))
        tidy(axes)
    figure.suptitle(title, fontsize=11, x=0.01, ha="left", color=INK)
    handles = {h.get_label(): h for axes in grid.flat for h in axes.get_lines()}
    figure.legend(handles=list(handles.values()), loc="outside right center", frameon=False, fontsize=8)
    return figure
