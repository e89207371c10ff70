"""Figures for papers: their widths, fonts and legends."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from idiolect.errors import UserError
from idiolect.methods.catalogue import METHODS
from idiolect.records import Run
from idiolect.reports import (
    clients_data,
    clients_figure,
    image,
    lines_figure,
    refuse_unknown_style,
    write_report,
)
from idiolect.reports.figures.charts import bars_figure
from idiolect.reports.figures.paper_style import VENUES, drawn_for, sizes

MANY = [entry.label for entry in METHODS.values()][:14]


def points() -> pd.DataFrame:
    lines = [("Rounds to go", name, x, 50.0 + x + place) for place, name in enumerate(MANY) for x in range(9)]
    return pd.DataFrame(lines, columns=["panel", "line", "x", "value"])


def drawn(figure: Figure) -> Figure:
    FigureCanvasAgg(figure).draw()
    return figure


@pytest.mark.parametrize("width", ["column", "full"])
@pytest.mark.parametrize("venue", list(VENUES))
def test_figures_have_the_width_of_the_venue(venue: str, width: str) -> None:
    with drawn_for(venue, width):
        figure = drawn(lines_figure(points(), "Round", "Title"))
    assert figure.get_figwidth() == getattr(VENUES[venue], width)
    assert sizes().width == 0
    boxes = [text.get_window_extent() for text in figure.legends[0].get_texts()]
    assert len(boxes) == len(MANY)
    assert max(box.x1 for box in boxes) <= figure.bbox.x1 and min(box.x0 for box in boxes) >= 0
    for place, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[:place])
    panel = figure.axes[0].get_tightbbox()
    assert panel.y0 > max(box.y1 for box in boxes)
    assert panel.height > 0.5 * 300


def test_labels_of_many_methods_do_not_overlap(comparison: list[Run]) -> None:
    with drawn_for("icml"):
        figure = drawn(clients_figure(clients_data(comparison)))
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert len(boxes) == 9
    for place, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[:place])


def test_fonts_of_a_pdf_are_embedded_as_truetype() -> None:
    with drawn_for("ieee"):
        content = image(bars_figure(points().assign(x=""), "", "Error"), "pdf")
    assert b"/Type3" not in content and b"/FontFile2" in content
    text = content + b"".join(
        zlib.decompress(found) for found in re.findall(rb"stream\n(.*?)\nendstream", content, re.S)[:1]
    )
    assert b"DejaVu" not in text


def test_report_for_a_venue_leaves_the_screen_alone(comparison: list[Run], tmp_path: Path) -> None:
    before = image(lines_figure(points(), "x"), "png")
    write_report(comparison[:2], tmp_path, ["svg"], style="acm", width="full")
    assert 'width="504.36pt"' in (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert image(lines_figure(points(), "x"), "png") == before


@pytest.mark.parametrize(
    ("style", "width", "formats", "words"),
    [
        ("nature", "column", ["pdf"], "must be one of neurips, icml, ieee, acm"),
        ("icml", "half", ["pdf"], "must be one of column, full"),
        (None, "half", ["pdf"], "must be one of column, full"),
        (None, "full", ["pdf"], "name one with --style"),
        ("icml", "column", ["csv"], "add --format pdf"),
    ],
)
def test_wrong_styles_are_refused(style: str | None, width: str, formats: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        refuse_unknown_style(style, width, formats)
