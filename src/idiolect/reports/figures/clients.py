"""Figures with one value for each client: final value, change against FedAvg, round of the teacher."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.figures.charts import bars_figure
from idiolect.reports.figures.paper_style import sizes
from idiolect.reports.figures.style import (
    COLOURS,
    INK,
    appearances,
    label_panel,
    make_figure,
    make_panels,
    set_title,
    tidy,
    wrapped,
)
from idiolect.reports.judged_metric import ACCURACY, JudgedMetric, judged_by
from idiolect.reports.run_groups import group_runs, scenes_of
from idiolect.statistics import (
    LAST,
    Reading,
    change_histogram,
    changes,
    client_labels,
    client_scores,
    replicate_of,
    same_clients,
    teacher_rounds,
    worst_tenth,
)

__all__ = [
    "change_data",
    "change_figure",
    "clients_data",
    "clients_figure",
    "clients_heat_data",
    "teachers_data",
    "teachers_figure",
]

COLUMNS = ["method", "predictor", "seed", "data_seed", "client"]
MEAN: dict[str, Any] = {
    "marker": "|",
    "markersize": 22,
    "markeredgewidth": 2.6,
    "color": INK,
    "linestyle": "none",
}
WORST: dict[str, Any] = {
    "marker": "v",
    "markersize": 9,
    "color": "white",
    "markeredgecolor": INK,
    "linestyle": "none",
}
GAIN, LOSS = COLOURS[0], COLOURS[1]
REFERENCE = "fedavg"
ROOMY = 2.0  # inches of a panel in a paper whose bars show their numbers


def clients_data(runs: Iterable[Run], reading: Reading = LAST) -> pd.DataFrame:
    """Returns the final headline accuracy of each client, one row each.

    Columns: `method`, `predictor`, `seed`, `data_seed`, `client`, `accuracy`.  Client k is the same in two runs only
    where `data_seed` is.

    Runs that are judged by another metric have a column named after it in place of `accuracy`.
    """
    runs = list(runs)
    name = judged_by(runs).name
    tables = [pd.DataFrame(columns=[*COLUMNS, name])]
    for label, group in group_runs(runs).items():
        for run in group:
            values = client_scores(run, reading=reading).rename(name).reset_index()
            facts = {
                "method": label,
                "predictor": run.manifest.get("headline", "global"),
                "seed": run.manifest["seed"],
                "data_seed": replicate_of(run).data_seed,
            }
            tables.append(values.assign(**facts))
    filled = [table for table in tables if len(table)] or tables[:1]
    return pd.concat(filled, ignore_index=True)[[*COLUMNS, name]]


def clients_figure(
    data: pd.DataFrame, methods: Iterable[str] = (), metric: JudgedMetric = ACCURACY
) -> Figure:
    """Draws one strip of dots per method, the best mean on top; several seeds share a strip.

    Args:
        data: the table of `clients_data`.
        methods: all methods of the report in order, so that each has the same colour in every figure.
        metric: what the runs are judged by.
    """
    looks = appearances([*methods, *data["method"]])
    averages = data.groupby("method")[metric.name].mean()
    means = averages.sort_values(ascending=metric.higher_is_better, kind="stable")
    figure, axes = make_figure((9.5, 1.6 + 0.5 * max(2, len(means))), 0.75 + 0.22 * max(2, len(means)))
    for height, label in enumerate(means.index):
        _strip(axes, data[data["method"] == label], height, looks[label].colour, metric)
    predictors = data.groupby("method")["predictor"].first()
    second = {label: "" if sizes().width else f"\n{predictors[label]}" for label in means.index}
    axes.set_yticks(range(len(means)), [wrapped(label) + second[label] for label in means.index])
    axes.set_ylim(-0.6, len(means) - 0.4)
    seeds = data["seed"].nunique()
    pooled = f", {seeds} seeds together" if seeds > 1 else ""
    set_title(axes, f"{metric.title} of each client{pooled}")
    unit = " (%)" if metric.is_share else ""
    axes.set_xlabel(f"{metric.title} on the client's own test split{unit}", fontsize=sizes().label, color=INK)
    tidy(axes, grid="x")
    if data.empty:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color="#777777")
    marks = [
        Line2D([], [], label="mean", **{**_sized(MEAN), "markersize": 12 * sizes().scale}),
        Line2D([], [], label="worst tenth", **_sized(WORST)),
    ]
    figure.legend(
        handles=marks,
        loc="outside lower right",
        ncols=2,
        frameon=False,
        fontsize=sizes().text,
        labelcolor=INK,
    )
    return figure


def _strip(axes: Axes, points: pd.DataFrame, height: int, colour: str, metric: JudgedMetric) -> None:
    """Draws the dots of one method, spread by a fixed seed so that the same record gives the same figure."""
    spread = np.random.default_rng(0).uniform(-0.26, 0.26, len(points))
    opacity = float(np.clip(60 / max(1, len(points)), 0.15, 0.7))
    shown = metric.factor * points[metric.name]
    axes.scatter(shown, height + spread, s=16 * sizes().scale ** 2, color=colour, alpha=opacity, linewidths=0)
    by_seed = points.groupby(["seed", "data_seed"])[metric.name]
    axes.plot(metric.factor * by_seed.mean().mean(), height, **_sized(MEAN))
    worst = by_seed.apply(worst_tenth, metric.higher_is_better).mean()
    axes.plot(metric.factor * worst, height, **_sized(WORST))


def _sized(mark: dict[str, Any]) -> dict[str, Any]:
    """Returns a mark in the size of the figures drawn now."""
    keys = ("markersize", "markeredgewidth")
    return {key: value * sizes().scale if key in keys else value for key, value in mark.items()}


def clients_heat_data(runs: Iterable[Run], reading: Reading = LAST) -> pd.DataFrame:
    """Returns values for a heat map: `panel`, `row` (the method), `column` (the client), `value` (shares: %).

    Values are means over seeds; where seeds redraw the clients, each data seed has a panel of its own.
    """
    runs = list(runs)
    metric, data = judged_by(runs), clients_data(runs, reading)
    unit = " (%)" if metric.is_share else ""
    title = f"Final {metric.word} of every client{unit}"
    several = not same_clients(runs)
    panels = data["data_seed"].map(lambda seed: f"{title}, data seed {seed}" if several else title)
    means = metric.factor * data.groupby([panels, "method", "client"], sort=False)[metric.name].mean()
    found = means.rename("value").rename_axis(["panel", "row", "column"]).reset_index()
    return found[["panel", "row", "column", "value"]]


def change_data(runs: Iterable[Run], reading: Reading = LAST) -> pd.DataFrame:
    """Returns by client the change of value against FedAvg, or against the first method of a scene without FedAvg.

    Columns: `panel`, `client`, `value`, of shares in points.  A method with other seeds or clients than the reference
    of its scene cannot be paired and is left out.

    Raises:
        UserError: no two methods can be paired.
    """
    runs = list(runs)
    factor, scenes, tables = judged_by(runs).factor, scenes_of(runs), []
    for scene, groups in scenes.items():
        named = (
            label
            for label, group in groups.items()
            if group[0].manifest["method"].partition("(")[0] == REFERENCE
        )
        reference = next(named, next(iter(groups)))
        where = f", {scene}" if len(scenes) > 1 else ""
        for label, group in groups.items():
            try:
                found = factor * changes(group, groups[reference], reading=reading)
            except UserError:
                continue
            table = pd.DataFrame({"client": client_labels(found.index), "value": found.to_numpy()})
            if label != reference:
                tables.append(table.assign(panel=f"{label} against {reference}{where}"))
    if not tables:
        raise UserError("no two methods of a scene have the same seeds and clients")
    return pd.concat(tables, ignore_index=True)[["panel", "client", "value"]]


def change_figure(
    points: pd.DataFrame, title: str = "", *, bins: int = 20, metric: JudgedMetric = ACCURACY
) -> Figure:
    """Draws one histogram for each `panel`, with counts on the bars and a bin edge at 0 (MAP, figure 10).

    Args:
        points: columns `panel`, `client`, `value`; several values of a client are averaged first.
        metric: what changes.
    """
    panels = list(dict.fromkeys(points["panel"]))
    figure, grid = make_panels(len(panels), title)
    for axes, panel in zip(grid, panels, strict=True):
        values = points[points["panel"] == panel].groupby("client")["value"].mean()
        _histogram(axes, values, bins, metric.higher_is_better)
        losing = int((values < 0).sum() if metric.higher_is_better else (values > 0).sum())
        heading = f"{panel}\n{losing} of {len(values)} clients lose"
        label_panel(axes, heading, metric.change_axis, "Clients", grid="y")
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    return figure


def _histogram(axes: Axes, values: pd.Series, bins: int, higher_is_better: bool) -> None:
    found = change_histogram(values, bins)
    width = found.edges[1] - found.edges[0]
    grid = axes.get_gridspec()
    roomy = not sizes().width or grid is None or sizes().width / grid.ncols > ROOMY
    for edge, count in zip(found.edges[:-1], found.counts, strict=True):
        if count:
            colour = LOSS if (edge < -width / 2) == higher_is_better else GAIN
            axes.bar(edge, count, width, align="edge", color=colour, edgecolor="white")
            if roomy:
                size = sizes().small - (2 if sizes().width else 0)
                axes.text(
                    edge + width / 2, count, str(count), ha="center", va="bottom", fontsize=size, color=INK
                )
    axes.axvline(0, color=INK, linewidth=1)
    axes.margins(y=0.15)


def teachers_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Returns the round of each client's teacher: `panel`, `line` (the method), `x` (the client), `value` (the round).

    Rounds are means over seeds; where seeds redraw the clients, each data seed has a panel of its own.  Methods that
    keep no teacher are left out.

    Raises:
        UserError: no run has recorded teachers.
    """
    tables = []
    for label, group in group_runs(runs).items():
        try:
            found = teacher_rounds(group)
        except UserError:
            continue
        several = found.index.nlevels > 1
        clients = found.index.get_level_values("client")
        panels = [f"Data seed {seed}" for seed, _ in found.index] if several else "Mean over seeds"
        table = pd.DataFrame({"x": clients, "value": found["round"].to_numpy()})
        tables.append(table.assign(panel=panels, line=label))
    if not tables:
        raise UserError("no run has teacher rounds; PersFL records them")
    return pd.concat(tables, ignore_index=True)[["panel", "line", "x", "value"]]


def teachers_figure(data: pd.DataFrame, methods: Iterable[str] = ()) -> Figure:
    """Draws one bar for each client and method (PersFL, figure 2)."""
    title = "Round at which each client's teacher was kept"
    return bars_figure(data, "Client", "Round", title, lines=methods)
