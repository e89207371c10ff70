"""Aggregation against personalisation: one mark for each method, or for each setting of one (MAP, figures 9 and 11)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from idiolect.records import Run
from idiolect.reports.figures.paper_style import sizes
from idiolect.reports.figures.style import (
    COLOURS,
    INK,
    MARKERS,
    appearances,
    label_panel,
    legend_beside,
    make_figure,
    make_panels,
    tidy,
    wrapped,
)
from idiolect.reports.judged_metric import ACCURACY, JudgedMetric, judged_by
from idiolect.reports.run_groups import group_runs
from idiolect.statistics import LAST, Reading, tradeoff

__all__ = ["scatter_data", "scatter_figure", "settings_figure"]

AXES = {"x": "aggregation", "y": "personalisation"}
EDGE = 0.02  # x of methods without a global model, as a share of the width
APART = 0.08  # share of the width that is left free for them
LINE = 0.25  # inches of a line of the legend


def scatter_data(runs: Iterable[Run], reading: Reading = LAST) -> pd.DataFrame:
    """Returns the values of both axes, one row per method; see `idiolect.statistics.tradeoff`."""
    runs = list(runs)
    return tradeoff(group_runs(runs), judged_by(runs).name, reading=reading)


def scatter_figure(
    data: pd.DataFrame,
    methods: Iterable[str] = (),
    metric: JudgedMetric = ACCURACY,
    labels: tuple[str, str] = (
        "Global model on the server's test set",
        "Personalised, mean over all clients",
    ),
    title: str = "",
) -> Figure:
    """Draws one mark for each method, with one SD over seeds where there are several.

    A method without a global model is drawn on the left edge.

    Args:
        data: the table of `scatter_data`.
        methods: all methods of the report in order, so that each has the same colour in every figure.
        metric: what the runs are judged by.
        labels: what the two axes show, without its unit.
    """
    factor = metric.factor
    looks = appearances([*methods, *data["method"]])
    figure, axes = make_figure((8.5, max(4.9, LINE * (len(data) + 2))), 0.75 * min(3.5, sizes().width))
    marks = []
    for line in data.sort_values("personalisation", ascending=not metric.higher_is_better).to_dict("records"):
        look, whole = looks[line["method"]], not pd.isna(line["aggregation"])
        style: dict[str, Any] = {"marker": look.marker, "color": look.colour, "markersize": 9 * sizes().scale}
        style |= {"linestyle": "none", "fillstyle": "full" if whole else "none"}
        spread = {axis: factor * line[f"{name}_sd_seeds"] for axis, name in AXES.items()}
        errors = {axis: None if pd.isna(value) else value for axis, value in spread.items()}
        if whole:
            at = factor * line["aggregation"], factor * line["personalisation"]
            axes.errorbar(
                *at,
                xerr=errors["x"],
                yerr=errors["y"],
                capsize=3 * sizes().scale,
                elinewidth=1.5 * sizes().scale,
                **style,
            )
        else:
            axes.plot(EDGE, factor * line["personalisation"], transform=axes.get_yaxis_transform(), **style)
        marks.append(Line2D([], [], label=wrapped(line["method"]), **style))
    axes.set_xlabel(metric.in_brackets(labels[0]), fontsize=sizes().label, color=INK)
    axes.set_ylabel(metric.in_brackets(labels[1]), fontsize=sizes().label, color=INK)
    if data["aggregation"].isna().any() and data["aggregation"].notna().any():
        low, high = axes.get_xlim()
        axes.set_xlim(low - APART * (high - low), high)
    axes.set_title(title, loc="left", fontsize=sizes().label, color=INK)
    tidy(axes)
    hollow = "hollow: no global model" if data["aggregation"].isna().any() else None
    legend_beside(figure, marks, hollow, wide=True)
    return figure


def settings_figure(points: pd.DataFrame, title: str = "") -> Figure:
    """Draws one mark for each setting of one method.

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
            markersize=8 * sizes().scale,
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
