"""Two-dimensional features of samples and proxies, the rows of the head (MAP, figure 5)."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from idiolect.reports.figures.style import COLOURS, INK, label_panel, legend_beside, make_panels

__all__ = ["features_figure"]

LONGER = 10.0  # factor by which proxies are lengthened


def features_figure(points: pd.DataFrame, title: str = "") -> Figure:
    """Draws one panel for each `panel`: samples in the colour of their class, proxies as lengthened arrows.

    Arrows of missing classes are white.

    Args:
        points: columns `panel`, `what` (sample or proxy), `label` (the class), `x`, `y`, `observed` (of proxies).
    """
    panels = list(dict.fromkeys(points["panel"]))
    figure, grid = make_panels(len(panels), title, columns=2, size=(4.2, 3.8))
    for axes, panel in zip(grid, panels, strict=True):
        here = points[points["panel"] == panel]
        for label, found in here[here["what"] == "sample"].groupby("label"):
            axes.scatter(found["x"], found["y"], s=6, color=_colour(label), alpha=0.5, linewidths=0)
        for proxy in here[here["what"] == "proxy"].to_dict("records"):
            _arrow(axes, proxy)
        label_panel(axes, str(panel), "Feature 0", "Feature 1")
    labels = sorted(set(points["label"].astype(int)))
    marks = [
        Line2D([], [], marker="o", linestyle="none", color=_colour(label), label=f"class {label}")
        for label in labels
    ]
    legend_beside(figure, marks, "arrows: proxies x 10,\nwhite: missing class")
    return figure


def _colour(label: float) -> str:
    return COLOURS[int(label) % len(COLOURS)]


def _arrow(axes: Axes, proxy: dict[str, float]) -> None:
    face = _colour(proxy["label"]) if proxy["observed"] else "white"
    end = (LONGER * proxy["x"], LONGER * proxy["y"])
    look = {"arrowstyle": "-|>", "facecolor": face, "edgecolor": INK, "linewidth": 1.2, "shrinkA": 0}
    axes.annotate("", end, (0, 0), arrowprops={**look, "mutation_scale": 14})
    axes.update_datalim([end])
    axes.autoscale_view()
