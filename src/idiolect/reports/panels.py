"""Panels side by side under one title, with one legend for all."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from idiolect.reports.appearance import DPI, INK, tidy

__all__ = ["label_panel", "legend_beside", "make_panels"]

COLUMNS = 3


def make_panels(
    count: int,
    title: str = "",
    *,
    columns: int = COLUMNS,
    size: tuple[float, float] = (4.2, 3.4),
    share: bool = False,
) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` panels, row by row.

    Args:
        columns: at most so many in a row.
        size: of one panel in inches.
        share: all panels have one scale up and down.
    """
    width = max(1, min(columns, count))
    height = max(1, -(-count // width))
    figure = Figure(figsize=(size[0] * width + 2.5, size[1] * height), layout="constrained", dpi=DPI)
    grid = figure.subplots(height, width, squeeze=False, sharey=share)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=11, x=0.01, ha="left", color=INK)
    return figure, list(grid.flat[:count])


def label_panel(axes: Axes, title: str, x_label: str, y_label: str = "", grid: str = "both") -> None:
    """Title and axis labels in the style of every picture."""
    axes.set_title(title, fontsize=10, loc="left", color=INK)
    axes.set_xlabel(x_label, fontsize=9, color=INK)
    axes.set_ylabel(y_label, fontsize=9, color=INK)
    tidy(axes, grid=grid)


def legend_beside(figure: Figure, handles: Iterable[Artist], title: str | None = None) -> None:
    """One legend right of all panels; of several marks with one label the first stands for all."""
    found = {str(handle.get_label()): handle for handle in handles}
    figure.legend(
        handles=list(found.values()),
        title=title,
        title_fontsize=9,
        loc="outside right center",
        frameon=False,
        fontsize=8,
        labelcolor=INK,
    )
