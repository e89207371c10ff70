"""Aggregation against personalisation of one method under many settings (MAP, figure 11)."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from idiolect.reports.appearance import COLOURS, MARKERS
from idiolect.reports.panels import label_panel, legend_beside, make_panels

__all__ = ["settings_figure"]


def settings_figure(points: pd.DataFrame, title: str = "") -> Figure:
    """Draws one mark for each setting.

    Args:
        points: columns `colour` and `shape`, the two halves of a setting's name, `aggregation`, `personalisation`.
    """
    colours = dict(zip(dict.fromkeys(points["colour"]), COLOURS * len(points), strict=False))
    shapes = dict(zip(dict.fromkeys(points["shape"]), MARKERS * len(points), strict=False))
    figure, (axes,) = make_panels(1, title, size=(5.6, 4.4))
    for line in points.to_dict("records"):
        look = {"color": colours[line["colour"]], "marker": shapes[line["shape"]]}
        axes.plot(
            line["aggregation"],
            line["personalisation"],
            linestyle="none",
            markersize=8,
            markeredgecolor="white",
            **look,
        )
    label_panel(axes, "", "Global model on the server's test set (%)", "Personalised, selected clients (%)")
    marks = [
        Line2D([], [], marker="s", linestyle="none", color=colour, label=str(name))
        for name, colour in colours.items()
    ]
    marks += [
        Line2D([], [], marker=shape, linestyle="none", color="#555555", label=str(name))
        for name, shape in shapes.items()
        if name
    ]
    legend_beside(figure, marks)
    return figure
