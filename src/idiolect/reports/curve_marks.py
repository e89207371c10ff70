"""The marks of the curves: a line with its band, and the points of the end of the run."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from idiolect.reports.appearance import INK, Appearance

__all__ = ["draw_curve", "draw_ends", "line_style"]

MARKERS_PER_LINE = 6
GUTTER_STEP = 0.045


def line_style(look: Appearance) -> dict[str, Any]:
    """How a method's line looks, in the panels and in the legend."""
    return {
        "color": look.colour,
        "linestyle": look.line,
        "linewidth": 1.7,
        "marker": look.marker,
        "markersize": 6,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }


def draw_curve(axes: Axes, curve: pd.DataFrame, look: Appearance, place: int) -> None:
    """One line with a few markers, shifted by its place so that lines close together stay apart."""
    if curve.empty:
        return
    rounds = curve["round"].astype(float)
    percent, band = 100 * curve["accuracy"].astype(float), 100 * curve["sd_seeds"].astype(float)
    every = max(1, round(len(curve) / MARKERS_PER_LINE))
    axes.plot(rounds, percent, markevery=(place % every, every), **line_style(look))
    if band.notna().any():
        axes.fill_between(rounds, percent - band, percent + band, color=look.colour, alpha=0.13, linewidth=0)


def draw_ends(axes: Axes, ends: pd.DataFrame, looks: dict[str, Appearance]) -> None:
    """Ringed points in a gutter right of the last round, one column each, with one SD over seeds."""
    if ends.empty:
        return
    last = max(float(ends["round"].max()), axes.dataLim.x1)
    first = min(float(ends["round"].min()), axes.dataLim.x0)
    step = GUTTER_STEP * max(1.0, last - first)
    axes.axvspan(last + 0.4 * step, last + (len(ends) + 1) * step, color="#F3F3F3", linewidth=0, zorder=0)
    for column, (label, accuracy, spread) in enumerate(
        zip(ends["method"], ends["accuracy"], ends["sd_seeds"], strict=True), start=1
    ):
        style = {**line_style(looks[label]), "linestyle": "none", "markersize": 9, "markeredgecolor": INK}
        error = 0.0 if pd.isna(spread) else 100 * spread
        axes.errorbar(last + (column + 0.2) * step, 100 * accuracy, yerr=error, capsize=3, zorder=5, **style)
    middle = last + (0.7 + 0.5 * len(ends)) * step
    axes.annotate(
        "end of run",
        (middle, 0.03),
        xycoords=("data", "axes fraction"),
        rotation=90,
        ha="center",
        va="bottom",
        fontsize=9,
        color="#777777",
    )
