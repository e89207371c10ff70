"""Learning curves: what methods are judged by against rounds, and the cost of reaching a target."""

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
from idiolect.reports.figures.paper_style import sizes
from idiolect.reports.figures.style import (
    INK,
    Appearance,
    appearances,
    legend_beside,
    make_panels,
    set_title,
    tidy,
    wrapped,
)
from idiolect.reports.judged_metric import ACCURACY, JudgedMetric, judged_by
from idiolect.reports.run_groups import group_runs
from idiolect.statistics import columns_over_replicates, cost_to_target, curve, over_replicates, server_curve

__all__ = ["curves_data", "curves_figure", "targets_data", "targets_figure"]

PANELS = {
    "global": "Global model on the server's test set",
    "personalised": "Personalised models, mean over all clients",
}
MARKERS_PER_LINE = 6
GUTTER_STEP = 0.045  # between two points at the end of the run, as a share of the x axis
STEPS = 24  # targets between the lowest and the highest value
COSTS = ("Rounds", "Megabytes down", "Megabytes up", "Gigaflops", "Simulated seconds")


def curves_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Returns the mean accuracy over seeds and its SD (n - 1, NaN for one seed), by method and round.

    Runs that are judged by another metric have a column named after it in place of `accuracy`.
    `panel` is `global`, the global model on the server's test set, or `personalised`, the headline predictor's mean
    over all clients.  `moment` is `round` on a curve and `end` for the point at the end of the run.  A round that not
    every seed measured is left out, so that a curve averages the same seeds throughout.
    """
    runs = list(runs)
    name = judged_by(runs).name
    columns = ["method", "panel", "moment", "round", name, "sd_seeds", "seeds"]
    tables = [pd.DataFrame(columns=columns)]
    for label, group in group_runs(runs).items():
        measured = {
            ("global", "round"): [server_curve(run) for run in group],
            ("personalised", "round"): [curve(run) for run in group],
            ("personalised", "end"): [_end_of_run(run) for run in group],
        }
        for (panel, moment), curves in measured.items():
            points = _over_seeds(group, curves, name)
            tables.append(points.assign(method=label, panel=panel, moment=moment, seeds=len(group)))
    filled = [table for table in tables if len(table)] or tables[:1]
    return pd.concat(filled, ignore_index=True)[columns]


def _end_of_run(run: Run) -> pd.Series:
    """Returns the headline's mean over all clients at the end of the run, or nothing if not measured."""
    return curve(run, moment="end").tail(1)


def _over_seeds(runs: Sequence[Run], curves: list[pd.Series], name: str) -> pd.DataFrame:
    found = columns_over_replicates(runs, pd.concat(curves, axis=1).dropna())
    frame = found.rename(columns={"mean": name, "sd": "sd_seeds"})
    return frame.rename_axis("round").reset_index()


def curves_figure(data: pd.DataFrame, metric: JudgedMetric = ACCURACY) -> Figure:
    """Draws the global model on the left and the personalised ones on the right.

    Bands show one SD over seeds; ringed points show the end of the run.

    Args:
        data: the table of `curves_data`.
        metric: what the runs are judged by.
    """
    data = data.assign(shown=metric.factor * data[metric.name], sd_seeds=metric.factor * data["sd_seeds"])
    looks = appearances(data["method"])
    figure, panels = make_panels(2, size=(5.0, 4.9), share=True)
    for axes, (panel, title) in zip(panels, PANELS.items(), strict=True):
        shown = data[data["panel"] == panel]
        for place, (label, look) in enumerate(looks.items()):
            line = shown[(shown["method"] == label) & (shown["moment"] == "round")]
            _draw_curve(axes, line, look, place)
        _draw_ends(axes, shown[shown["moment"] == "end"], looks)
        set_title(axes, title)
        axes.set_xlabel("Round", fontsize=sizes().label, color=INK)
        _whole_rounds(axes, shown)
        axes.tick_params(labelleft=True)
        tidy(axes)
        if shown.empty:
            axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color="#777777")
    for axes in panels if sizes().most_panels(2) == 1 else panels[:1]:
        axes.set_ylabel(metric.axis, fontsize=sizes().label, color=INK)
    bands = "bands: SD over seeds" if data["sd_seeds"].notna().any() else None
    legend_beside(figure, _handles(data, looks, metric), bands, wide=True)
    return figure


def _whole_rounds(axes: Axes, shown: pd.DataFrame) -> None:
    """Sets ticks at whole rounds, none beyond the last."""
    if len(shown):
        first, last = int(shown["round"].min()), int(shown["round"].max())
        ticks = MaxNLocator(nbins=9, integer=True).tick_values(min(first, last - 1), last)
        axes.set_xticks([tick for tick in ticks if min(first, 0) <= tick <= last])


def _handles(data: pd.DataFrame, looks: dict[str, Appearance], metric: JudgedMetric) -> list[Line2D]:
    """Returns the legend entries in the order of the curves at the right edge, the best personalised one first."""
    last = data[data["panel"] == "personalised"].groupby("method")["shown"].last()
    upwards = last if metric.higher_is_better else -last
    order = sorted(looks, key=lambda label: -upwards.get(label, -np.inf))
    return [Line2D([], [], label=wrapped(label), **line_style(looks[label])) for label in order]


def _draw_curve(axes: Axes, line: pd.DataFrame, look: Appearance, place: int) -> None:
    """Draws one line with a few markers, shifted by `place` so that the markers of close lines do not overlap."""
    if line.empty:
        return
    rounds = line["round"].astype(float)
    shown, band = line["shown"].astype(float), line["sd_seeds"].astype(float)
    every = max(1, round(len(line) / MARKERS_PER_LINE))
    axes.plot(rounds, shown, markevery=(place % every, every), **line_style(look))
    if band.notna().any():
        axes.fill_between(rounds, shown - band, shown + band, color=look.colour, alpha=0.13, linewidth=0)


def _draw_ends(axes: Axes, ends: pd.DataFrame, looks: dict[str, Appearance]) -> None:
    """Draws ringed points beside the last round, in one column each, with one SD over seeds."""
    if ends.empty:
        return
    last = max(float(ends["round"].max()), axes.dataLim.x1)
    first = min(float(ends["round"].min()), axes.dataLim.x0)
    step = GUTTER_STEP * max(1.0, last - first)
    axes.axvspan(last + 0.4 * step, last + (len(ends) + 1) * step, color="#F3F3F3", linewidth=0, zorder=0)
    for column, (label, shown, spread) in enumerate(
        zip(ends["method"], ends["shown"], ends["sd_seeds"], strict=True), start=1
    ):
        style = {
            **line_style(looks[label]),
            "linestyle": "none",
            "markersize": 9 * sizes().scale,
            "markeredgecolor": INK,
        }
        error = 0.0 if pd.isna(spread) else spread
        axes.errorbar(
            last + (column + 0.2) * step, shown, yerr=error, capsize=3 * sizes().scale, zorder=5, **style
        )
    middle = last + (0.7 + 0.5 * len(ends)) * step
    axes.annotate(
        "end of run",
        (middle, 0.03),
        xycoords=("data", "axes fraction"),
        rotation=90,
        ha="center",
        va="bottom",
        fontsize=sizes().text,
        color="#777777",
    )


def targets_data(runs: Iterable[Run], targets: Sequence[float] | None = None) -> pd.DataFrame:
    """Returns what it costs to reach a target: `panel`, `line` (the method), `x` (the target), `value`.

    Operations and simulated seconds have rows only where runs counted them.  Targets that are shares are in percent.
    The headline's mean over all clients has to reach the target, and values are means over seeds, of seeds nested in
    partitions within each first.  A target that a seed never reaches has no row; a model that exists only at the end
    costs the whole run.

    Args:
        targets: shares in [0, 1] or other values; without them, equal steps from the lowest to the highest measured.
    """
    runs = list(runs)
    metric = judged_by(runs)
    groups = group_runs(runs)
    curves = {
        label: [(_end_of_run(run).combine_first(curve(run)), run.rounds) for run in group]
        for label, group in groups.items()
    }
    if targets is None:
        values = pd.concat([points for group in curves.values() for points, _ in group])
        targets = list(np.linspace(values.min(), values.max(), STEPS)) if len(values) else []
    lines = []
    for label, group in curves.items():
        for target in targets:
            costs = [_cost(points, rounds, target, metric) for points, rounds in group]
            reached = [cost for cost in costs if cost is not None]
            if len(reached) < len(costs):
                continue
            found = [over_replicates(groups[label], one).mean for one in zip(*reached, strict=True)]
            lines += [
                (panel, label, metric.factor * target, value)
                for panel, value in zip(COSTS, found, strict=True)
                if not np.isnan(value)
            ]
    return pd.DataFrame(lines, columns=["panel", "line", "x", "value"])


def _cost(
    points: pd.Series, rounds: pd.DataFrame, target: float, metric: JudgedMetric
) -> tuple[float, ...] | None:
    """Returns the costs named in ``COSTS`` until a target, or None where it is never reached.

    What the run has not counted is NaN.
    """
    cost = cost_to_target(points, rounds, target, higher_is_better=metric.higher_is_better)
    if cost.round is None or cost.bytes_down is None or cost.bytes_up is None:
        return None
    flops = np.nan if cost.flops is None else cost.flops / 1e9
    seconds = np.nan if cost.simulated_seconds is None else cost.simulated_seconds
    return cost.round, cost.bytes_down / 1e6, cost.bytes_up / 1e6, flops, seconds


def targets_figure(
    data: pd.DataFrame, methods: Iterable[str] = (), metric: JudgedMetric = ACCURACY
) -> Figure:
    """Draws the table of `targets_data`; a line ends at the best value that its method reaches."""
    ordered = data.sort_values("panel", key=lambda panels: panels.map(COSTS.index), kind="stable")
    x_label = f"Personalised {metric.word} to be reached{' (%)' if metric.is_share else ''}"
    return lines_figure(ordered, x_label, "Cost of reaching a target", lines=methods)
