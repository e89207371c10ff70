"""Learning curves: accuracy against rounds, and the cost of reaching a target accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from idiolect.records import Run
from idiolect.reports.figures.charts import line_style, lines_figure
from idiolect.reports.figures.style import INK, Appearance, appearances, tidy, wrapped
from idiolect.reports.run_groups import group_runs
from idiolect.statistics import cost_to_target, curve, server_curve

__all__ = ["curves_data", "curves_figure", "targets_data", "targets_figure"]

PANELS = {
    "global": "Global model on the server's test set",
    "personalised": "Personalised models, mean over all clients",
}
COLUMNS = ["method", "panel", "moment", "round", "accuracy", "sd_seeds", "seeds"]
MARKERS_PER_LINE = 6
GUTTER_STEP = 0.045  # between two points at the end of the run, as a share of the x axis
STEPS = 24  # targets between the lowest and the highest accuracy
COSTS = ("Rounds", "Megabytes down", "Megabytes up")


def curves_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Returns the mean accuracy over seeds and its SD (n - 1, NaN for one seed), by method and round.

    `panel` is `global`, the global model on the server's test set, or `personalised`, the headline predictor's mean
    over all clients.  `moment` is `round` on a curve and `end` for the point at the end of the run.  A round that not
    every seed measured is left out, so that a curve averages the same seeds throughout.
    """
    tables = [pd.DataFrame(columns=COLUMNS)]
    for label, group in group_runs(runs).items():
        measured = {
            ("global", "round"): [server_curve(run) for run in group],
            ("personalised", "round"): [curve(run) for run in group],
            ("personalised", "end"): [_end_of_run(run) for run in group],
        }
        for (panel, moment), curves in measured.items():
            points = _over_seeds(curves)
            tables.append(points.assign(method=label, panel=panel, moment=moment, seeds=len(group)))
    filled = [table for table in tables if len(table)] or tables[:1]
    return pd.concat(filled, ignore_index=True)[COLUMNS]


def _end_of_run(run: Run) -> pd.Series:
    """Returns the mean headline accuracy over all clients at the end of the run, or nothing if not measured."""
    return curve(run, moment="end").tail(1)


def _over_seeds(curves: list[pd.Series]) -> pd.DataFrame:
    together = pd.concat(curves, axis=1).dropna()
    frame = pd.DataFrame({"accuracy": together.mean(axis=1), "sd_seeds": together.std(axis=1, ddof=1)})
    return frame.rename_axis("round").reset_index()


def curves_figure(data: pd.DataFrame) -> Figure:
    """Draws the global model on the left and the personalised ones on the right.

    Bands show one SD over seeds; ringed points show the end of the run.
    """
    looks = appearances(data["method"])
    figure = Figure(figsize=(12.5, 4.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (panel, title) in zip(panels, PANELS.items(), strict=True):
        shown = data[data["panel"] == panel]
        for place, (label, look) in enumerate(looks.items()):
            line = shown[(shown["method"] == label) & (shown["moment"] == "round")]
            _draw_curve(axes, line, look, place)
        _draw_ends(axes, shown[shown["moment"] == "end"], looks)
        axes.set_title(title, fontsize=11, loc="left", color=INK)
        axes.set_xlabel("Round", fontsize=10, color=INK)
        _whole_rounds(axes, shown)
        axes.tick_params(labelleft=True)
        tidy(axes)
        if shown.empty:
            axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color="#777777")
    panels[0].set_ylabel("Accuracy (%)", fontsize=10, color=INK)
    figure.legend(
        handles=_handles(data, looks),
        title="bands: SD over seeds" if data["sd_seeds"].notna().any() else None,
        title_fontsize=9,
        loc="outside right center",
        frameon=False,
        fontsize=9,
        handlelength=3.4,
        labelspacing=0.8,
        labelcolor=INK,
    )
    return figure


def _whole_rounds(axes: Axes, shown: pd.DataFrame) -> None:
    """Sets ticks at whole rounds, none beyond the last."""
    if len(shown):
        first, last = int(shown["round"].min()), int(shown["round"].max())
        ticks = MaxNLocator(nbins=9, integer=True).tick_values(min(first, last - 1), last)
        axes.set_xticks([tick for tick in ticks if min(first, 0) <= tick <= last])


def _handles(data: pd.DataFrame, looks: dict[str, Appearance]) -> list[Line2D]:
    """Returns the legend entries in the order of the curves at the right edge, the best personalised one first."""
    last = data[data["panel"] == "personalised"].groupby("method")["accuracy"].last()
    order = sorted(looks, key=lambda label: -last.get(label, -1.0))
    return [Line2D([], [], label=wrapped(label), **line_style(looks[label])) for label in order]


def _draw_curve(axes: Axes, line: pd.DataFrame, look: Appearance, place: int) -> None:
    """Draws one line with a few markers, shifted by `place` so that the markers of close lines do not overlap."""
    if line.empty:
        return
    rounds = line["round"].astype(float)
    percent, band = 100 * line["accuracy"].astype(float), 100 * line["sd_seeds"].astype(float)
    every = max(1, round(len(line) / MARKERS_PER_LINE))
    axes.plot(rounds, percent, markevery=(place % every, every), **line_style(look))
    if band.notna().any():
        axes.fill_between(rounds, percent - band, percent + band, color=look.colour, alpha=0.13, linewidth=0)


def _draw_ends(axes: Axes, ends: pd.DataFrame, looks: dict[str, Appearance]) -> None:
    """Draws ringed points beside the last round, in one column each, with one SD over seeds."""
    if ends.empty:
        return
    last = max(float(ends["round"].max()), axes.dataLim.x1)
    first = min(float(ends["round"].min()), axes.dataLim.x0)
    step = GUTTER_STEP * max(1.0, last - first)
    axes.axvspan(last + 0.4 * step, last + (len(ends) + 1) * step, color="#F3F3F3", linewidth=0, zorder=0)
    for column, (label, accuracy, spread) in enumerate(
        zip(ends["method"], ends["accuracy"], ends["sd_seeds"], strict=True), start=1
    ):
        style = {**line_style(looks[label]), "linestyle": "none", "markersize": 9, "markeredgecolor": INK}
        error = 0.0 if pd.isna(spread) else 100 * spread
        axes.errorbar(last + (column + 0.2) * step, 100 * accuracy, yerr=error, capsize=3, zorder=5, **style)
    middle = last + (0.7 + 0.5 * len(ends)) * step
    axes.annotate(
        "end of run",
        (middle, 0.03),
        xycoords=("data", "axes fraction"),
        rotation=90,
        ha="center",
        va="bottom",
        fontsize=9,
        color="#777777",
    )


def targets_data(runs: Iterable[Run], targets: Sequence[float] | None = None) -> pd.DataFrame:
    """Returns rounds and bytes to a target: `panel`, `line` (the method), `x` (the target in percent), `value`.

    The headline's mean over all clients has to reach the target, and values are means over seeds.  A target that a
    seed never reaches has no row; a model that exists only at the end of the run costs the whole run.

    Args:
        targets: accuracies in [0, 1]; without them, equal steps from the lowest to the highest value measured.
    """
    curves = {
        label: [(_end_of_run(run).combine_first(curve(run)), run.rounds) for run in group]
        for label, group in group_runs(runs).items()
    }
    if targets is None:
        values = pd.concat([points for group in curves.values() for points, _ in group])
        targets = list(np.linspace(values.min(), values.max(), STEPS)) if len(values) else []
    lines = []
    for label, group in curves.items():
        for target in targets:
            costs = [_cost(points, rounds, target) for points, rounds in group]
            reached = [cost for cost in costs if cost is not None]
            if len(reached) < len(costs):
                continue
            found = np.mean(reached, axis=0)
            lines += [
                (panel, label, 100 * target, float(value)) for panel, value in zip(COSTS, found, strict=True)
            ]
    return pd.DataFrame(lines, columns=["panel", "line", "x", "value"])


def _cost(points: pd.Series, rounds: pd.DataFrame, target: float) -> tuple[float, float, float] | None:
    """Returns rounds, megabytes down and megabytes up until a target, or None where it is never reached."""
    cost = cost_to_target(points, rounds, target)
    if cost.round is None or cost.bytes_down is None or cost.bytes_up is None:
        return None
    return cost.round, cost.bytes_down / 1e6, cost.bytes_up / 1e6


def targets_figure(data: pd.DataFrame, methods: Iterable[str] = ()) -> Figure:
    """Draws the table of `targets_data`; a line ends at the highest accuracy that its method reaches."""
    ordered = data.sort_values("panel", key=lambda panels: panels.map(COSTS.index), kind="stable")
    x_label = "Personalised accuracy to be reached (%)"
    return lines_figure(ordered, x_label, "Cost of reaching a target", lines=methods)
