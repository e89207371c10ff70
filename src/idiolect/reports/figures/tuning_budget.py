"""How good the best setting of each method was after how much tuning, so that no method wins by tuning alone."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from idiolect.reports.figures.charts import line_style
from idiolect.reports.figures.style import appearances, label_panel, legend_beside, make_panels, wrapped
from idiolect.reports.judged_metric import ACCURACY, JudgedMetric

__all__ = ["budget_figure"]

SPENT = {"trials": "Trials", "rounds": "Rounds spent"}


def budget_figure(points: pd.DataFrame, metric: JudgedMetric = ACCURACY) -> Figure:
    """Draws the best validation value of each method against the trials and the rounds that were spent on it.

    Args:
        points: columns `method`, `trials`, `rounds` and `best`, a share in percent.
    """
    looks = appearances(points["method"])
    figure, grid = make_panels(len(SPENT), "Best setting so far, on validation data", share=True)
    unit = " (%)" if metric.is_share else ""
    for axes, (column, words) in zip(grid, SPENT.items(), strict=True):
        for name, own in points.groupby("method", sort=False):
            style = {**line_style(looks[name]), "drawstyle": "steps-post"}
            axes.plot(own[column], own["best"], label=wrapped(str(name)), **style)
        label_panel(axes, "", words, f"Best validation {metric.word}{unit}")
    handles = [line for line in grid[0].get_lines() if not str(line.get_label()).startswith("_")]
    legend_beside(figure, handles, "")
    return figure
