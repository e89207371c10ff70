"""Bars side by side: a number for every client, or for every setting."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from idiolect.reports.appearance import appearances, wrapped
from idiolect.reports.panels import label_panel, legend_beside, make_panels

__all__ = ["bars_figure"]

TOGETHER = 0.8  # of the width from one place to the next
MOST_NAMED = 24


def bars_figure(
    points: pd.DataFrame, x_label: str, y_label: str, title: str = "", *, lines: Iterable[str] = ()
) -> Figure:
    """Draws one panel for each `panel`, at each `x` one bar for each `line`.

    Args:
        points: columns `panel`, `line`, `x` (a name or a number), `value` and, for error bars, `sd`.
        lines: all lines of the report in order, so that each keeps its colour from figure to figure.
    """
    panels, looks = list(dict.fromkeys(points["panel"])), appearances([*lines, *points["line"]])
    figure, grid = make_panels(len(panels), title)
    for axes, panel in zip(grid, panels, strict=True):
        here = points[points["panel"] == panel]
        places = {x: place for place, x in enumerate(dict.fromkeys(here["x"]))}
        groups = list(here.groupby("line", sort=False))
        width = TOGETHER / max(1, len(groups))
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
                label=wrapped(str(label)),
            )
        every = -(-len(places) // MOST_NAMED)
        named = list(places)[::every]
        axes.set_xticks(np.arange(0, len(places), every), [str(name) for name in named])
        label_panel(axes, str(panel), x_label, y_label, grid="y")
    legend_beside(figure, [bars for axes in grid for bars in axes.containers if bars.get_label()[0] != "_"])
    return figure
