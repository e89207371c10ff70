"""Style and layout shared by all figures: looks of methods, sizes, panels, legends, image files.

A method looks the same in every figure of every report, because its look follows from its name alone: `LOOKS` has the
methods of the catalogue, and a digest of the name serves all others.  Variants of one method share its colour and
differ in line style and marker.  The first colours are those of Okabe and Ito (2008) without yellow, which vanishes
on white; darker and duller ones follow.  No two methods of the catalogue share colour and line style, nor
colour and marker.
"""

from __future__ import annotations

import hashlib
import io
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import Container
from matplotlib.figure import Figure

from idiolect.reports.figures.paper_style import sizes

__all__ = [
    "DPI",
    "IMAGE_FORMATS",
    "INK",
    "Appearance",
    "appearance",
    "appearances",
    "image",
    "label_panel",
    "legend_beside",
    "make_figure",
    "make_panels",
    "set_title",
    "tidy",
    "wrapped",
]

DPI = 150
IMAGE_FORMATS = ("png", "svg", "pdf")
LABEL_WIDTH = 26
INK = "#333333"
# name of a colour -> on a light and on a dark background; their order is that of the page's variables
PALETTE = {
    "blue": ("#0072B2", "#3D8FD6"),
    "vermilion": ("#D55E00", "#E8742A"),
    "green": ("#009E73", "#12B886"),
    "pink": ("#CC79A7", "#E39AC4"),
    "orange": ("#E69F00", "#F0B429"),
    "sky": ("#56B4E9", "#8CD0F5"),
    "black": ("#000000", "#F2F2F2"),
    "wine": ("#882255", "#C2527F"),
    "olive": ("#999933", "#BDBD5A"),
    "indigo": ("#332288", "#8577E0"),
    "grey": ("#888888", "#A0A0A0"),
    "brown": ("#8C510A", "#C08A4A"),
    "teal": ("#44AA99", "#6AC9B8"),
    "forest": ("#117733", "#4FA86B"),
    "purple": ("#AA4499", "#CE7AC0"),
    "rose": ("#CC6677", "#E58F9C"),
}
COLOURS = tuple(light for light, _ in PALETTE.values())
DARK_COLOURS = tuple(dark for _, dark in PALETTE.values())
Line = str | tuple[int, tuple[float, ...]]
LINES: tuple[Line, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (5, 1.2, 1.2, 1.2)),
    (0, (9, 2)),
    (0, (5, 1.2, 1.2, 1.2, 1.2, 1.2)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "d")
# name in the catalogue -> colour, place in LINES, marker; relatives share a colour
LOOKS: dict[str, tuple[str, int, str]] = {
    "local": ("grey", 2, "X"),
    "fedavg": ("black", 0, "o"),
    "fedavg_lu": ("black", 1, "s"),
    "fedavgm": ("black", 2, "^"),
    "fedprox": ("brown", 0, "D"),
    "fedprox_lu": ("brown", 1, "v"),
    "fedmmd": ("brown", 2, "p"),
    "scaffold": ("indigo", 0, "^"),
    "scars": ("indigo", 1, "P"),
    "feddyn": ("indigo", 2, "h"),
    "fednova": ("indigo", 3, "d"),
    "feddf": ("grey", 0, "d"),
    "fedadagrad": ("olive", 1, "v"),
    "fedadam": ("olive", 2, "<"),
    "fedyogi": ("olive", 3, "p"),
    "fedaws": ("grey", 1, "h"),
    "fedcurv": ("grey", 3, "<"),
    "moon": ("rose", 0, "p"),
    "fedproto": ("rose", 1, "<"),
    "fedper": ("green", 0, "s"),
    "lg_fedavg": ("green", 1, "D"),
    "fedrod": ("green", 2, "v"),
    "fedrep": ("teal", 0, "v"),
    "flda": ("rose", 2, "d"),
    "fedfu": ("teal", 1, "h"),
    "feddml": ("teal", 2, "X"),
    "apfl": ("olive", 0, "D"),
    "pfedme": ("forest", 0, "<"),
    "perfedavg_fo": ("purple", 0, "h"),
    "perfedavg_hf": ("purple", 1, "d"),
    "ditto": ("wine", 0, "P"),
    "dittors": ("wine", 1, "X"),
    "fedrs": ("orange", 0, ">"),
    "fedphp": ("sky", 0, "p"),
    "map": ("vermilion", 0, "o"),
    "scamap": ("vermilion", 1, "^"),
    "persfl": ("blue", 0, "D"),
    "persfl_gd": ("blue", 1, "v"),
    "superfed_mm": ("pink", 0, "s"),
    "superfed_lm": ("pink", 1, "^"),
    "fedbabu": ("green", 3, "h"),
    "fedbn": ("green", 4, "P"),
    "fedala": ("sky", 1, "D"),
    "fedas": ("sky", 3, "v"),
    "feddbe": ("sky", 2, "P"),
    "gpfl": ("sky", 4, "X"),
    "fedcp": ("sky", 5, "<"),
    "fedlc": ("orange", 1, "d"),
    "fedamp": ("purple", 3, "o"),
    "fedfomo": ("purple", 4, "s"),
    "fedpac": ("teal", 3, "p"),
    "pfedsim": ("purple", 5, "X"),
    "feddistill": ("rose", 4, "v"),
    "fedgh": ("rose", 3, "s"),
    "fedcac": ("forest", 1, "D"),
    "cfl": ("forest", 2, "s"),
    "knn_per": ("forest", 3, "p"),
    "ifca": ("forest", 4, "X"),
    "apple": ("forest", 5, "v"),
    "fedgen": ("grey", 4, "v"),
    "fedkd": ("teal", 4, "D"),
    "floco": ("pink", 2, "h"),
    "fedntd": ("orange", 2, "v"),
    "pfedhn": ("olive", 4, "o"),
    "fedem": ("olive", 5, "X"),
}
_BY_LETTERS = {re.sub(r"[^a-z0-9]", "", name): look for name, look in LOOKS.items()}
GridLines = Literal["both", "x", "y", "none"]
MOST_COLUMNS = 3
HIGHEST = 8.5  # inches of a page that panels fill at most


class Appearance(NamedTuple):
    """The colour, line style and marker of a method."""

    colour: str
    line: Line
    marker: str

    @property
    def number(self) -> int:
        """The place of the colour in `COLOURS`, which a page needs to choose the one for its background."""
        return COLOURS.index(self.colour)


def appearance(label: str) -> Appearance:
    """Returns the look of a method from its name as the catalogue or a table writes it, and from nothing else.

    >>> appearance("SuPerFed-MM") == appearance("superfed_mm")
    True
    >>> appearance("MAP (alpha=0.5)").colour == appearance("MAP").colour
    True
    """
    whole = _letters(label)
    if whole in _BY_LETTERS:
        colour, line, marker = _BY_LETTERS[whole]
        return Appearance(PALETTE[colour][0], LINES[line], marker)
    base = re.split(r"\s*[(+#]", label, maxsplit=1)[0]
    digest = hashlib.sha256(label.encode()).digest()
    marker = MARKERS[digest[1] % len(MARKERS)]
    if _letters(base) in _BY_LETTERS:
        colour, own, taken = _BY_LETTERS[_letters(base)]
        others = [place for place in range(len(LINES)) if place != own]
        marker = [sign for sign in MARKERS if sign != taken][digest[1] % (len(MARKERS) - 1)]
        return Appearance(PALETTE[colour][0], LINES[others[digest[2] % len(others)]], marker)
    family = hashlib.sha256((_letters(base) or label).encode()).digest()
    return Appearance(COLOURS[family[0] % len(COLOURS)], LINES[digest[2] % len(LINES)], marker)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def appearances(labels: Iterable[str]) -> dict[str, Appearance]:
    """Returns the appearance of each method, which depends on its name alone."""
    return {label: appearance(label) for label in dict.fromkeys(labels)}


def wrapped(label: str) -> str:
    """Returns a label wrapped to several lines where it is long, as for composed methods."""
    return "\n".join(textwrap.wrap(label, LABEL_WIDTH, break_long_words=False)) or label


def tidy(axes: Axes, grid: GridLines = "both") -> None:
    """Removes what carries no information: two spines, tick marks, a heavy grid."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#999999")
    axes.tick_params(length=0, labelsize=sizes().text, colors=INK)
    if grid != "none":
        axes.grid(True, axis=grid, color="#E6E6E6", linewidth=0.8 * sizes().scale)
    axes.set_axisbelow(True)


def make_figure(size: tuple[float, float], paper_height: float) -> tuple[Figure, Axes]:
    """Returns a figure with one panel: of ``size`` on a screen, as wide as the venue says and so high in a paper."""
    width = sizes().width
    figure = Figure(
        figsize=(width, paper_height) if width else size, layout="constrained", dpi=sizes().dpi or DPI
    )
    return figure, figure.subplots()


def make_panels(
    count: int,
    title: str = "",
    *,
    columns: int = MOST_COLUMNS,
    size: tuple[float, float] = (4.2, 3.4),
    share: bool = False,
    paper_height: float | None = None,
) -> tuple[Figure, list[Axes]]:
    """Returns a figure and its ``count`` panels, row by row.

    Args:
        columns: the largest number of panels in a row.
        size: width and height of one panel in inches, on a screen.
        share: whether all panels share their y axis.
        paper_height: height of one panel in a paper; without it two thirds of its width.
    """
    width = max(1, min(columns, count, sizes().most_panels(count)))
    height = max(1, -(-count // width))
    across, down = size[0] * width + 2.5, size[1] * height
    if sizes().width:
        across = sizes().width
        each = paper_height or min(2.1, 0.8 * across / width, HIGHEST / height)
        down = each * height + (0.2 if title else 0.0)
    figure = Figure(figsize=(across, down), layout="constrained", dpi=sizes().dpi or DPI)
    grid = figure.subplots(height, width, squeeze=False, sharey=share)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=sizes().title, x=0.01, ha="left", color=INK)
    return figure, list(grid.flat[:count])


def label_panel(axes: Axes, title: str, x_label: str, y_label: str = "", grid: GridLines = "both") -> None:
    """Sets the title and axis labels of a panel in the style of all figures."""
    set_title(axes, title, min(10, sizes().title))
    axes.set_xlabel(x_label, fontsize=sizes().text, color=INK)
    axes.set_ylabel(y_label, fontsize=sizes().text, color=INK)
    tidy(axes, grid=grid)


def set_title(axes: Axes, text: str, size: float | None = None) -> None:
    """Writes the title of a panel, in a paper on as many lines as its width needs."""
    size = size or sizes().title
    if sizes().width:
        each = sizes().width / _columns(axes)
        letters = max(12, int(72 * each / (0.5 * size)))
        text = "\n".join("\n".join(textwrap.wrap(line, letters)) for line in text.splitlines())
    axes.set_title(text, fontsize=size, loc="left", color=INK)


def _columns(axes: Axes) -> int:
    grid = axes.get_gridspec()
    return int(grid.ncols) if grid is not None else 1


def legend_beside(
    figure: Figure, handles: Iterable[Artist | Container], title: str | None = None, *, wide: bool = False
) -> None:
    """Draws one legend beside all panels; marks with the same label share one entry.

    It stands on the right on a screen and, in a paper, below the panels, for which the figure grows.

    Args:
        wide: whether entries have room around them, as in figures with few panels.
    """
    found = {str(handle.get_label()): handle for handle in handles}
    size = sizes().small + (1 if wide and not sizes().width else 0)
    common = {"title": title, "title_fontsize": sizes().text, "frameon": False, "fontsize": size}
    if not sizes().width:
        room = {"handlelength": 3.4, "labelspacing": 0.8} if wide else {}
        figure.legend(
            handles=list(found.values()), loc="outside right center", labelcolor=INK, **common, **room
        )
        return
    columns = _legend_columns(list(found), size)
    lines = sum(
        max(name.count("\n") + 1 for name in list(found)[row : row + columns])
        for row in range(0, len(found), columns)
    )
    figure.set_figheight(figure.get_figheight() + (lines + bool(title) + 0.6) * 1.35 * size / 72)
    figure.legend(
        handles=list(found.values()),
        loc="outside lower center",
        ncols=columns,
        handlelength=2.6,
        columnspacing=1.0,
        labelspacing=0.3,
        labelcolor=INK,
        **common,
    )


def _legend_columns(labels: Sequence[str], size: float) -> int:
    """Returns how many entries fit side by side; a letter is about half as wide as high."""
    longest = max((len(line) for label in labels for line in label.splitlines()), default=1)
    each = (0.52 * longest + 4.6) * size / 72
    fit = max(1, int(sizes().width / each))
    rows = -(-len(labels) // min(fit, max(1, len(labels))))
    return max(1, -(-len(labels) // max(1, rows)))


def image(figure: Figure, format: str) -> bytes:
    """Returns a figure as png, svg or pdf, without date and version, so that the same record gives the same bytes.

    Fonts in a pdf are embedded as Type 42 (TrueType), because submission systems refuse Type 3.
    """
    target = io.BytesIO()
    if format == "png":
        # matplotlib has no types for its backends
        FigureCanvasAgg(figure).print_png(target, metadata={"Software": None})  # type: ignore[no-untyped-call]
        return target.getvalue()
    date = "Date" if format == "svg" else "CreationDate"
    with rc_context({"svg.hashsalt": "idiolect", "pdf.fonttype": 42}):
        figure.savefig(target, format=format, metadata={date: None})
    return target.getvalue()
