"""Sizes and fonts of figures: for a screen, or for the columns of a venue, where they print at their true size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from matplotlib import font_manager, rc_context

from idiolect.errors import UserError, refuse_unknown_choice

__all__ = ["VENUES", "WIDTHS", "FigureStyle", "Venue", "drawn_for", "sizes"]

WIDTHS = ("column", "full")
PANEL = 2.2  # inches that a panel with its labels needs at least in a paper
SMALL_PANEL = 1.6  # the same where there are more than a few
FEW = 3
PAPER_DPI = 300


class Venue(NamedTuple):
    """What the style file of a venue fixes: widths in inches and fonts, the venue's own first."""

    column: float
    full: float
    fonts: tuple[str, ...]


TIMES = ("Times New Roman", "Times", "Nimbus Roman", "STIXGeneral")  # the last ships with matplotlib
VENUES = {
    # neurips_2024.sty: \textwidth=5.5in, one column, Times
    "neurips": Venue(5.5, 5.5, TIMES),
    # icml2024.sty: \textwidth=6.75in, \columnsep=0.25in, two columns, Times
    "icml": Venue(3.25, 6.75, TIMES),
    # IEEE Author Center, "Create graphics for your article": one column 3.5 in, two columns 7.16 in, Times
    "ieee": Venue(3.5, 7.16, TIMES),
    # acmart.cls, format sigconf: \columnwidth=241.15pt, \textwidth=506.3pt of 72.27 to the inch, Linux Libertine
    "acm": Venue(3.337, 7.005, ("Linux Libertine O", "Libertinus Serif", *TIMES)),
}


class FigureStyle(NamedTuple):
    """Sizes of a figure: fonts in points, the width in inches, 0 where the contents decide.

    Attributes:
        scale: factor of lines and marks.
    """

    width: float = 0.0
    title: float = 11
    label: float = 10
    text: float = 9
    small: float = 8
    scale: float = 1.0
    dpi: int | None = None

    def most_panels(self, count: int) -> int:
        """Returns how many of ``count`` panels stand side by side; many are smaller than few."""
        narrowest = PANEL if count <= FEW else SMALL_PANEL
        return max(1, int(self.width / narrowest)) if self.width else count


SCREEN = FigureStyle()
_CURRENT: ContextVar[FigureStyle] = ContextVar("figure_style", default=SCREEN)


def sizes() -> FigureStyle:
    """Returns the sizes in which figures are drawn now."""
    return _CURRENT.get()


@contextmanager
def drawn_for(venue: str | None, width: str = "column") -> Iterator[None]:
    """Draws the figures made inside at the size and in the fonts of a venue; None is the screen.

    Raises:
        UserError: the venue or the width is unknown.
    """
    refuse_unknown_choice("a width", width, WIDTHS)
    if venue is None:
        if width != "column":
            raise UserError(f"--width {width} is that of a venue; name one with --style {'|'.join(VENUES)}")
        yield
        return
    refuse_unknown_choice("a style", venue, VENUES)
    found = VENUES[venue]
    wide = found.column if width == "column" else found.full
    paper = FigureStyle(wide, title=8, label=8, text=7, small=7, scale=0.6, dpi=PAPER_DPI)
    fonts = [name for name in found.fonts if name in font_manager.get_font_names()]
    token = _CURRENT.set(paper)
    try:
        with rc_context({"font.family": fonts, "mathtext.fontset": "stix", "axes.linewidth": 0.5}):
            yield
    finally:
        _CURRENT.reset(token)
