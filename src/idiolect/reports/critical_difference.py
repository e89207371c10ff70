"""The critical-difference picture: mean ranks on a line, bars over methods that are not told apart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from idiolect.reports.appearance import INK, appearances

if TYPE_CHECKING:
    from idiolect.statistics import Ranking

__all__ = ["critical_difference_figure"]

ROW = 0.34  # inches between two labels
BAR = 0.24  # rows between two bars
GREY = "#999999"


def critical_difference_figure(ranking: Ranking, methods: Iterable[str] = ()) -> Figure:
    """Draws a ranking; rank 1, the best, is on the left.

    Args:
        ranking: what `rank_methods` gives.
        methods: all methods of the report in order, so that each keeps its colour from figure to figure.
    """
    names, count = list(ranking.ranks.index), len(ranking.ranks)
    looks = appearances([*methods, *names])
    half = -(-count // 2)
    bars = BAR * len(ranking.groups)
    depth = bars + half + 0.6
    figure = Figure(figsize=(9.5, ROW * (depth + 5)), layout="constrained")
    axes = figure.subplots()
    axes.set_xlim(1 - 0.32 * count, count + 0.32 * count)
    axes.set_ylim(-depth, 3.2)
    axes.axis("off")
    _scale(axes, count, ranking.distance)
    for place, (name, rank) in enumerate(ranking.ranks.items()):
        left = place < half
        level = -(bars + 0.7 + (place if left else count - 1 - place))
        edge = 0.9 if left else count + 0.1
        axes.plot([rank, rank, edge], [0, level, level], color=looks[str(name)].colour, linewidth=1.3)
        side, text = ("right", f"{name}  {rank:.2f} ") if left else ("left", f" {rank:.2f}  {name}")
        axes.text(edge, level, text, ha=side, va="center", fontsize=9, color=INK)
    for place, group in enumerate(ranking.groups, 1):
        first, last = (ranking.ranks[name] for name in (group[0], group[-1]))
        axes.plot([first - 0.04, last + 0.04], [-BAR * place] * 2, color=INK, linewidth=2.8)
    axes.set_title(_title(ranking), fontsize=11, loc="left", color=INK)
    return figure


def _scale(axes: Axes, count: int, distance: float) -> None:
    """The line of ranks, and above it how far apart two methods must be."""
    axes.plot([1, count], [0, 0], color=GREY, linewidth=1)
    for rank in range(1, count + 1):
        axes.plot([rank, rank], [0, 0.18], color=GREY, linewidth=1)
        axes.text(rank, 0.34, str(rank), ha="center", va="bottom", fontsize=9, color=INK)
    axes.plot([1, 1 + distance], [1.7, 1.7], color=INK, linewidth=1.6, marker="|", markersize=8)
    axes.text(1 + distance / 2, 1.9, f"CD {distance:.2f}", ha="center", va="bottom", fontsize=9, color=INK)


def _title(ranking: Ranking) -> str:
    verdict = "differ" if ranking.p_value < ranking.level else "are not told apart"
    return (
        f"Mean ranks over {ranking.scenarios} scenarios (1 is best); Friedman p = {ranking.p_value:.2g}: the methods "
        f"{verdict} at {ranking.level:g}"
    )
