"""Lines in panels."""

from __future__ import annotations

import pandas as pd

from idiolect.reports import lines_figure


def test_panels_lines_and_bands_are_those_of_the_points():
    points = pd.DataFrame(
        {
            "panel": ["a"] * 4 + ["b"] * 2,
            "line": ["x", "x", "y", "y", "x", "x"],
            "x": [1, 2, 1, 2, 1, 2],
            "value": [10.0, 20.0, 30.0, 40.0, 50.0, 60.0],
            "sd": [1.0, 1.0, None, None, 2.0, 2.0],
        }
    )
    figure = lines_figure(points, "Round", "t (quick)")
    assert figure.get_suptitle() == "t (quick)"
    first, second = figure.axes
    assert [axes.get_title(loc="left") for axes in (first, second)] == ["a", "b"]
    assert [line.get_ydata().tolist() for line in first.get_lines()] == [[10.0, 20.0], [30.0, 40.0]]
    assert [len(axes.collections) for axes in (first, second)] == [1, 1]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["x", "y"]
