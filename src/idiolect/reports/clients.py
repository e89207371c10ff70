"""The accuracy of every client, one strip per method: who gains, and who is left behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from idiolect.records import Run
from idiolect.reports.accuracies import final_clients, worst_tenth
from idiolect.reports.appearance import INK, appearances, tidy, wrapped
from idiolect.reports.grouping import group_runs

__all__ = ["clients_data", "clients_figure"]

COLUMNS = ["method", "predictor", "seed", "client", "accuracy"]
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


def clients_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Final headline accuracy of each client: columns `method`, `predictor`, `seed`, `client`, `accuracy`."""
    tables = [pd.DataFrame(columns=COLUMNS)]
    for label, group in group_runs(runs).items():
        for run in group:
            values = final_clients(run).rename("accuracy").reset_index()
            facts = {
                "method": label,
                "predictor": run.manifest.get("headline", "global"),
                "seed": run.manifest["seed"],
            }
            tables.append(values.assign(**facts))
    filled = [table for table in tables if len(table)] or tables[:1]
    return pd.concat(filled, ignore_index=True)[COLUMNS]


def clients_figure(data: pd.DataFrame, methods: Iterable[str] = ()) -> Figure:
    """Draws one strip per method, the best mean on top; several seeds share a strip.

    Args:
        data: what `clients_data` gives.
        methods: all methods of the report in order, so that each keeps its colour from figure to figure.
    """
    looks = appearances([*methods, *data["method"]])
    means = data.groupby("method")["accuracy"].mean().sort_values(kind="stable")
    figure = Figure(figsize=(9.5, 1.6 + 0.5 * max(2, len(means))), layout="constrained")
    axes = figure.subplots()
    for height, label in enumerate(means.index):
        _strip(axes, data[data["method"] == label], height, looks[label].colour)
    predictors = data.groupby("method")["predictor"].first()
    axes.set_yticks(range(len(means)), [f"{wrapped(label)}\n{predictors[label]}" for label in means.index])
    axes.set_ylim(-0.6, len(means) - 0.4)
    seeds = data["seed"].nunique()
    pooled = f", {seeds} seeds together" if seeds > 1 else ""
    axes.set_title(f"Accuracy of each client{pooled}", fontsize=11, loc="left", color=INK)
    axes.set_xlabel("Accuracy on the client's own test split (%)", fontsize=10, color=INK)
    tidy(axes, grid="x")
    if data.empty:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color="#777777")
    marks = [
        Line2D([], [], label="mean", **{**MEAN, "markersize": 12}),
        Line2D([], [], label="worst tenth", **WORST),
    ]
    figure.legend(
        handles=marks, loc="outside lower right", ncols=2, frameon=False, fontsize=9, labelcolor=INK
    )
    return figure


def _strip(axes: Axes, points: pd.DataFrame, height: int, colour: str) -> None:
    """Dots spread by a fixed seed, so that the same record gives the same picture."""
    spread = np.random.default_rng(0).uniform(-0.26, 0.26, len(points))
    opacity = float(np.clip(60 / max(1, len(points)), 0.15, 0.7))
    axes.scatter(100 * points["accuracy"], height + spread, s=16, color=colour, alpha=opacity, linewidths=0)
    by_seed = points.groupby("seed")["accuracy"]
    axes.plot(100 * by_seed.mean().mean(), height, **MEAN)
    axes.plot(100 * by_seed.apply(worst_tenth).mean(), height, **WORST)
