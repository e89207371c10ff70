"""Style and layout shared by all figures: colours, line styles, markers, panels, legends, image files.

A method looks the same in every figure, and differs from others without colour as well as with it.  The first seven
colours are those of Okabe and Ito (2008) without yellow, which vanishes on white; darker and duller ones follow.
Thirteen colours, four line styles and twelve markers are counted side by side, so no two of the first 52 methods share
colour and line style.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable
from typing import Literal, NamedTuple

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import Container
from matplotlib.figure import Figure

__all__ = [
    "DPI",
    "IMAGE_FORMATS",
    "INK",
    "Appearance",
    "appearances",
    "image",
    "label_panel",
    "legend_beside",
    "make_panels",
    "tidy",
    "wrapped",
]

DPI = 150
IMAGE_FORMATS = ("png", "svg", "pdf")
LABEL_WIDTH = 26
INK = "#333333"
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#882255",
    "#999933",
    "#332288",
    "#888888",
    "#8C510A",
    "#44AA99",
)
DARK_COLOURS = (
    "#3D8FD6",
    "#E8742A",
    "#12B886",
    "#E39AC4",
    "#F0B429",
    "#8CD0F5",
    "#F2F2F2",
    "#C2527F",
    "#BDBD5A",
    "#8577E0",
    "#A0A0A0",
    "#C08A4A",
    "#6AC9B8",
)  # the same hues for a dark background
LINES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "d")
Line = str | tuple[int, tuple[float, ...]]
GridLines = Literal["both", "x", "y", "none"]
MOST_COLUMNS = 3


class Appearance(NamedTuple):
    """The colour, line style and marker of a method."""

    colour: str
    line: Line
    marker: str


def appearances(labels: Iterable[str]) -> dict[str, Appearance]:
    """Returns the appearance of each method, which depends on its place in the list."""
    return {
        label: Appearance(
            COLOURS[place % len(COLOURS)], LINES[place % len(LINES)], MARKERS[place % len(MARKERS)]
        )
        for place, label in enumerate(dict.fromkeys(labels))
    }


def wrapped(label: str) -> str:
    """Returns a label wrapped to several lines where it is long, as for composed methods."""
    return "\n".join(textwrap.wrap(label, LABEL_WIDTH, break_long_words=False)) or label


def tidy(axes: Axes, grid: GridLines = "both") -> None:
    """Removes what carries no information: two spines, tick marks, a heavy grid."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#999999")
    axes.tick_params(length=0, labelsize=9, colors=INK)
    if grid != "none":
        axes.grid(True, axis=grid, color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)


def make_panels(
    count: int,
    title: str = "",
    *,
    columns: int = MOST_COLUMNS,
    size: tuple[float, float] = (4.2, 3.4),
    share: bool = False,
) -> tuple[Figure, list[Axes]]:
    """Returns a figure and its ``count`` panels, row by row.

    Args:
        columns: the largest number of panels in a row.
        size: width and height of one panel in inches.
        share: whether all panels share their y axis.
    """
    width = max(1, min(columns, count))
    height = max(1, -(-count // width))
    figure = Figure(figsize=(size[0] * width + 2.5, size[1] * height), layout="constrained", dpi=DPI)
    grid = figure.subplots(height, width, squeeze=False, sharey=share)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=11, x=0.01, ha="left", color=INK)
    return figure, list(grid.flat[:count])


def label_panel(axes: Axes, title: str, x_label: str, y_label: str = "", grid: GridLines = "both") -> None:
    """Sets the title and axis labels of a panel in the style of all figures."""
    axes.set_title(title, fontsize=10, loc="left", color=INK)
    axes.set_xlabel(x_label, fontsize=9, color=INK)
    axes.set_ylabel(y_label, fontsize=9, color=INK)
    tidy(axes, grid=grid)


def legend_beside(figure: Figure, handles: Iterable[Artist | Container], title: str | None = None) -> None:
    """Draws one legend to the right of all panels; marks with the same label share one entry."""
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


def image(figure: Figure, format: str) -> bytes:
    """Returns a figure as png, svg or pdf, without date and version, so that the same record gives the same bytes."""
    target = io.BytesIO()
    if format == "png":
        # matplotlib has no types for its backends
        FigureCanvasAgg(figure).print_png(target, metadata={"Software": None})  # type: ignore[no-untyped-call]
        return target.getvalue()
    date = "Date" if format == "svg" else "CreationDate"
    with rc_context({"svg.hashsalt": "idiolect", "pdf.fonttype": 42}):
        figure.savefig(target, format=format, metadata={date: None})
    return target.getvalue()
