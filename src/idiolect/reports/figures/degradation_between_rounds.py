"""Values before and after local training, and local degradation, by round (FedPHP, figures 2 and 6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.figures.charts import lines_figure
from idiolect.reports.figures.paper_style import sizes
from idiolect.reports.figures.style import COLOURS, INK, label_panel, legend_beside, make_panels
from idiolect.reports.judged_metric import ACCURACY, JudgedMetric, judged_by
from idiolect.reports.run_groups import group_runs
from idiolect.statistics import before_and_after, degradation

__all__ = ["before_after_data", "before_after_figure", "degradation_data", "degradation_figure"]

PANELS = {"delta_shared": "Main model", "delta_deployed": "Model that stands for the method"}
MOST_ROUNDS = 60
TRAINING = 0.6  # x width of local training, as a share of a round


def degradation_data(runs: Iterable[Run], at: str = "selection") -> pd.DataFrame:
    """Returns local degradation: `panel`, `line` (the method), `x` (the round), `value`, `sd` (n - 1).

    Those of shares are in points.  Values are means over the selected clients, then over seeds.  A round counts where
    every seed selected some client a second time.  Methods whose runs did not observe every round are left out.

    Args:
        at: of ``idiolect.statistics.degradation``: the client's next ``selection``, or the next ``round``.

    Raises:
        UserError: no run observed every round, or no client was selected twice.
    """
    tables, runs = [], list(runs)
    factor = judged_by(runs).factor
    for label, group in group_runs(runs).items():
        try:
            by_seed = [degradation(run, at=at).groupby("round")[list(PANELS)].mean() for run in group]
        except UserError:
            continue
        for name, panel in PANELS.items():
            together = factor * pd.concat([means[name] for means in by_seed], axis=1).dropna()
            found = pd.DataFrame({"value": together.mean(axis=1), "sd": together.std(axis=1, ddof=1)})
            tables.append(found.rename_axis("x").reset_index().assign(panel=panel, line=label))
    filled = [table for table in tables if len(table)]
    if not filled:
        raise UserError("local degradation needs runs with observe=always that select a client twice")
    return pd.concat(filled, ignore_index=True)[["panel", "line", "x", "value", "sd"]]


def degradation_figure(
    data: pd.DataFrame, methods: Iterable[str] = (), metric: JudgedMetric = ACCURACY
) -> Figure:
    """Draws the table of `degradation_data`; below 0 the download has less than the client's last model."""
    title = "Downloaded model less the client's last personalised one"
    figure = lines_figure(data, "Round", title, y_label=metric.change_axis, lines=methods)
    for axes in figure.axes:
        axes.axhline(0, color="#777777", linewidth=1)
    return figure


def before_after_data(runs: Iterable[Run], model: str = "shared") -> pd.DataFrame:
    """Returns values, shares in percent: `panel` (the method), `client`, `round`, `seed`, `before`, `after`.

    Runs that did not observe every round are left out.

    Args:
        model: ``shared``, the main model, or ``deployed``, the method's headline predictor.

    Raises:
        UserError: no run observed every round.
    """
    tables, runs = [], list(runs)
    factor = judged_by(runs).factor
    for label, group in group_runs(runs).items():
        for run in group:
            try:
                found = before_and_after(run)
            except UserError:
                continue
            values = {name: factor * found[f"{model}_{name}"] for name in ("before", "after")}
            tables.append(found[["client", "round"]].assign(panel=label, seed=run.manifest["seed"], **values))
    if not tables:
        raise UserError("accuracy before and after local training needs runs with observe=always")
    return pd.concat(tables, ignore_index=True)


def before_after_figure(points: pd.DataFrame, title: str = "", *, y_label: str = "Accuracy (%)") -> Figure:
    """Draws a zigzag line for each `panel`, of means over the clients selected in a round.

    This is figure 2 of FedPHP and figure 8 of MAP.  A cross shows the model as downloaded, a plus the model after local
    training.  Solid lines show local training, dotted lines the next download.

    Args:
        points: columns `panel`, `round`, `before`, `after`.
    """
    panels = list(dict.fromkeys(points["panel"]))
    figure, grid = make_panels(len(panels), title)
    for axes, panel in zip(grid, panels, strict=True):
        means = points[points["panel"] == panel].groupby("round")[["before", "after"]].mean()
        shown = means.head(MOST_ROUNDS)
        _draw_panel(axes, shown)
        part = f" (the first {len(shown)} of {len(means)})" if len(shown) < len(means) else ""
        label_panel(axes, str(panel), f"Round{part}", y_label)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    style: dict[str, Any] = {"color": COLOURS[0], "markeredgecolor": INK}
    legend_beside(
        figure,
        [
            Line2D([], [], marker="x", linestyle="none", label="downloaded", **style),
            Line2D([], [], marker="+", linestyle="none", label="personalised", **style),
            Line2D([], [], linestyle="-", label="local training", color=COLOURS[0]),
            Line2D([], [], linestyle=":", label="next download", color=COLOURS[1]),
        ],
    )
    return figure


def _draw_panel(axes: Axes, means: pd.DataFrame) -> None:
    rounds = means.index.to_numpy(float)
    before, after = means["before"].to_numpy(), means["after"].to_numpy()
    for place, start in enumerate(rounds):
        end = start + TRAINING
        axes.plot(
            [start, end], [before[place], after[place]], "-", color=COLOURS[0], linewidth=1.3 * sizes().scale
        )
        if place + 1 < len(rounds):
            axes.plot(
                [end, rounds[place + 1]],
                [after[place], before[place + 1]],
                ":",
                color=COLOURS[1],
                linewidth=1.1 * sizes().scale,
            )
    axes.plot(rounds, before, "x", color=INK, markersize=5 * sizes().scale)
    axes.plot(rounds + TRAINING, after, "+", color=INK, markersize=7 * sizes().scale)
