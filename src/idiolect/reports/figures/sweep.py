"""What is measured on validation data against each setting that a sweep varied."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from idiolect.reports.figures.charts import line_style
from idiolect.reports.figures.paper_style import sizes
from idiolect.reports.figures.style import INK, appearances, label_panel, legend_beside, make_panels, wrapped
from idiolect.reports.judged_metric import ACCURACY, JudgedMetric

__all__ = ["sweep_figure"]

LOGARITHMIC = 20.0  # ratio of the largest value to the smallest above which the x axis is logarithmic


def sweep_figure(points: pd.DataFrame, title: str = "", metric: JudgedMetric = ACCURACY) -> Figure:
    """Draws one panel for each key that was varied: every trial is a dot, and a line goes through the means.

    Args:
        points: columns `panel` (the key), `line` (the method), `x` (a number or a name), `value`, a share in percent,
            `best`: whether the trial was chosen, on validation data.
    """
    panels, looks = list(dict.fromkeys(points["panel"])), appearances(points["line"])
    figure, grid = make_panels(len(panels), title, share=True)
    for axes, panel in zip(grid, panels, strict=True):
        here = points[points["panel"] == panel]
        here = here.assign(x=_scale(axes, list(here["x"])))
        for label, line in here.groupby("line", sort=False):
            style = line_style(looks[label])
            means = line.groupby("x")["value"].mean()
            axes.plot(means.index, means, label=wrapped(str(label)), **style)
            axes.plot(
                line["x"],
                line["value"],
                ".",
                color=looks[label].colour,
                alpha=0.5,
                markersize=4 * sizes().scale,
            )
            chosen = line[line["best"]]
            axes.plot(
                chosen["x"],
                chosen["value"],
                "o",
                markersize=11 * sizes().scale,
                fillstyle="none",
                markeredgecolor=INK,
            )
        unit = " (%)" if metric.is_share else ""
        label_panel(axes, "", str(panel), f"Validation {metric.word}{unit}")
    handles = [
        line for axes in grid for line in axes.get_lines() if not str(line.get_label()).startswith("_")
    ]
    legend_beside(figure, handles, "ringed: chosen")
    return figure


def _scale(axes: Axes, values: list[Any]) -> list[float]:
    """Returns the x position of each value: numbers by their size, other values by their place, with named ticks."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        if min(values) > 0 and max(values) / min(values) > LOGARITHMIC:
            axes.set_xscale("log")
        return [float(value) for value in values]
    names = list(dict.fromkeys(map(str, values)))
    axes.set_xticks(range(len(names)), names)
    return [float(names.index(str(value))) for value in values]
