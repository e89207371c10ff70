"""What the pictures of ranks and of the trade-off show."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pytest

from idiolect.records import Run
from idiolect.reports import critical_difference_figure, scatter_data, scatter_figure
from idiolect.reports.figures.style import appearance
from idiolect.statistics import Ranking, rank_methods

SCORES = pd.DataFrame({"A": [0.9, 0.8, 0.9, 0.7], "B": [0.8, 0.7, 0.8, 0.8], "C": [0.1, 0.2, 0.1, 0.3]})


def horizontal(figure, width: float) -> list[tuple[float, float]]:
    """The level lines of one width, as (from, to)."""
    lines = [line for line in figure.axes[0].lines if line.get_linewidth() == width]
    return [tuple(line.get_xdata()) for line in lines]


def test_bars_span_the_methods_that_are_not_told_apart() -> None:
    ranking = Ranking(pd.Series({"A": 1.2, "B": 2.0, "C": 3.4}), 9, 8.0, 0.018, 1.1, 0.05, [("A", "B")])
    figure = critical_difference_figure(ranking)
    (bar,) = horizontal(figure, 2.8)
    assert bar == (pytest.approx(1.16), pytest.approx(2.04))
    assert horizontal(figure, 1.6) == [(1, pytest.approx(2.1))]
    texts = [text.get_text().strip() for text in figure.axes[0].texts]
    assert {"A  1.20", "B  2.00", "3.40  C", "CD 1.10"} <= set(texts)
    assert "9 scenarios" in figure.axes[0].get_title(loc="left")
    assert "the methods differ at 0.05" in figure.axes[0].get_title(loc="left")


def test_picture_says_when_friedman_finds_nothing() -> None:
    ranking = rank_methods(SCORES.iloc[:2])
    assert ranking.p_value > 0.05
    assert "are not told apart" in critical_difference_figure(ranking).axes[0].get_title(loc="left")


def test_methods_stand_at_their_ranks_in_their_colours() -> None:
    ranking = rank_methods(SCORES)
    drawn = [
        line for line in critical_difference_figure(ranking).axes[0].lines if line.get_linewidth() == 1.3
    ]
    assert [line.get_xdata()[0] for line in drawn] == ranking.ranks.tolist() == [1.25, 1.75, 3.0]
    assert [line.get_color() for line in drawn] == [appearance(name).colour for name in ranking.ranks.index]


def test_scatter_has_a_mark_per_method_hollow_without_a_global_model(comparison: list[Run]) -> None:
    data = scatter_data(comparison)
    assert list(data["method"]) == [run.manifest["label"] for run in comparison[::3]]
    figure = scatter_figure(data)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == list(data.sort_values("personalisation", ascending=False)["method"])
    hollow = [line for line in figure.axes[0].lines if line.get_fillstyle() == "none"]
    assert len(hollow) == data["aggregation"].isna().sum() == 2
    assert len(figure.axes[0].containers) == 7
    assert figure.legends[0].get_title().get_text() == "hollow: no global model"


def test_reports_are_imported_without_scipy_or_torch() -> None:
    check = "import sys, idiolect.reports; print({'scipy', 'torch'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
