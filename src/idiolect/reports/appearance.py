"""One look per method, the same in every figure, told apart without colour as well as with it.

The first seven colours are those of Okabe and Ito (2008) without yellow, which vanishes on white; darker
and duller ones follow.  Thirteen colours, four line styles and twelve markers run side by side, so no two of
the first 52 methods share colour and line style.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import NamedTuple

from matplotlib.axes import Axes

__all__ = ["DPI", "INK", "Appearance", "appearances", "tidy", "wrapped"]

DPI = 150
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
)  # the same hues on a dark ground
LINES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "d")

Line = str | tuple[int, tuple[float, ...]]


class Appearance(NamedTuple):
    """How a method is drawn."""

    colour: str
    line: Line
    marker: str


def appearances(labels: Iterable[str]) -> dict[str, Appearance]:
    """Gives each method its look, by its place in the list."""
    return {
        label: Appearance(
            COLOURS[place % len(COLOURS)], LINES[place % len(LINES)], MARKERS[place % len(MARKERS)]
        )
        for place, label in enumerate(dict.fromkeys(labels))
    }


def wrapped(label: str) -> str:
    """A long label, such as that of a composed method, on several lines."""
    return "\n".join(textwrap.wrap(label, LABEL_WIDTH, break_long_words=False)) or label


def tidy(axes: Axes, grid: str = "both") -> None:
    """Takes away what carries no information: two spines, tick marks, a heavy grid."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#999999")
    axes.tick_params(length=0, labelsize=9, colors=INK)
    if grid in {"both", "x", "y"}:
        axes.grid(True, axis=grid, color="#E6E6E6", linewidth=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
