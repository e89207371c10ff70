"""Methods ranked over scenes, and the critical-difference figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from idiolect import statistics
from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.figures.paper_style import sizes
from idiolect.reports.figures.style import INK, appearances, make_figure, set_title
from idiolect.reports.judged_metric import ACCURACY, JudgedMetric, judged_by
from idiolect.reports.run_groups import scenes_of, without_repeated_clients
from idiolect.statistics import LAST, Reading

if TYPE_CHECKING:
    from idiolect.statistics import Ranking

__all__ = ["critical_difference_figure", "ranks_data", "ranks_figure"]

ROW = 0.34  # inches between two labels
BAR = 0.24  # rows between two bars
GREY = "#999999"


def ranks_data(runs: Iterable[Run], reading: Reading = LAST) -> pd.DataFrame:
    """Returns the headline's value, mean over clients and seeds, with scenes as rows and methods as columns.

    A method that is missing in a scene is left out, and so are disturbed versions of a scene that is there.

    Raises:
        UserError: there are fewer than two scenes, or fewer than three methods in all of them, or runs are judged by
            different metrics.
    """
    runs = list(runs)
    metric = judged_by(runs)
    every = scenes_of(runs) if runs else {}
    apart = without_repeated_clients({name: next(iter(g.values()))[0] for name, g in every.items()})
    groups = {name: every[name] for name in apart}
    shared = [label for label in next(iter(groups.values()), {}) if all(label in g for g in groups.values())]
    if len(groups) < 2 or len(shared) < 3:
        raise UserError(f"ranks need three methods in each of two scenes, got {len(shared)} in {len(groups)}")
    chosen = {name: {label: found[label] for label in shared} for name, found in groups.items()}
    return statistics.scenario_table(chosen, metric=metric.name, reading=reading).rename_axis("scene")


def ranks_figure(data: pd.DataFrame, methods: Iterable[str] = (), metric: JudgedMetric = ACCURACY) -> Figure:
    """Draws the critical-difference figure of the table of `ranks_data`."""
    ranking = statistics.rank_methods(data, higher_is_better=metric.higher_is_better)
    return critical_difference_figure(ranking, methods)


def critical_difference_figure(ranking: Ranking, methods: Iterable[str] = ()) -> Figure:
    """Draws mean ranks on a line, the best on the left, with bars over methods without a significant difference.

    Args:
        ranking: the result of `rank_methods`.
        methods: all methods of the report in order, so that each has the same colour in every figure.
    """
    names, count = list(ranking.ranks.index), len(ranking.ranks)
    looks = appearances([*methods, *names])
    half = -(-count // 2)
    bars = BAR * len(ranking.groups)
    depth = bars + half + 0.6
    figure, axes = make_figure((9.5, ROW * (depth + 5)), 0.5 * ROW * (depth + 6.5))
    margin = _margin(names, figure.get_figwidth()) * count
    axes.set_xlim(1 - margin, count + margin)
    axes.set_ylim(-depth, 3.2)
    axes.axis("off")
    _scale(axes, count, ranking.distance)
    for place, (name, rank) in enumerate(ranking.ranks.items()):
        left = place < half
        level = -(bars + 0.7 + (place if left else count - 1 - place))
        edge = 0.9 if left else count + 0.1
        axes.plot(
            [rank, rank, edge],
            [0, level, level],
            color=looks[str(name)].colour,
            linewidth=1.3 * sizes().scale,
        )
        side, text = ("right", f"{name}  {rank:.2f} ") if left else ("left", f" {rank:.2f}  {name}")
        axes.text(edge, level, text, ha=side, va="center", fontsize=sizes().text, color=INK)
    for place, group in enumerate(ranking.groups, 1):
        first, last = (ranking.ranks[name] for name in (group[0], group[-1]))
        axes.plot([first - 0.04, last + 0.04], [-BAR * place] * 2, color=INK, linewidth=2.8 * sizes().scale)
    set_title(axes, _title(ranking))
    return figure


def _margin(names: list[str], width: float) -> float:
    """Returns the room that the longest name needs on each side, as a share of the scale."""
    longest = (max(map(len, names)) + 7) * 0.52 * sizes().text / 72
    return max(0.32, longest / max(0.4, width - 2 * longest))


def _scale(axes: Axes, count: int, distance: float) -> None:
    """Draws the axis of ranks and, above it, the critical difference."""
    axes.plot([1, count], [0, 0], color=GREY, linewidth=1)
    for rank in range(1, count + 1, -(-count // 14)):
        axes.plot([rank, rank], [0, 0.18], color=GREY, linewidth=1)
        axes.text(rank, 0.34, str(rank), ha="center", va="bottom", fontsize=sizes().text, color=INK)
    axes.plot(
        [1, 1 + distance],
        [1.7, 1.7],
        color=INK,
        linewidth=1.6 * sizes().scale,
        marker="|",
        markersize=8 * sizes().scale,
    )
    axes.text(
        1 + distance / 2,
        1.9,
        f"CD {distance:.2f}",
        ha="center",
        va="bottom",
        fontsize=sizes().text,
        color=INK,
    )


def _title(ranking: Ranking) -> str:
    verdict = "differ" if ranking.p_value < ranking.level else "are not told apart"
    return (
        f"Mean ranks over {ranking.scenarios} scenarios (1 is best); Friedman p = {ranking.p_value:.2g}: the methods "
        f"{verdict} at {ranking.level:g}"
    )
