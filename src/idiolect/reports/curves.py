"""Accuracy against rounds: the global model on the left, the personalised ones on the right."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from idiolect.records import Run
from idiolect.reports.accuracies import end_of_run, global_curve, personal_curve
from idiolect.reports.appearance import INK, Appearance, appearances, tidy, wrapped
from idiolect.reports.curve_marks import draw_curve, draw_ends, line_style
from idiolect.reports.grouping import group_runs

__all__ = ["curves_data", "curves_figure"]

PANELS = {
    "global": "Global model on the server's test set",
    "personalised": "Personalised models, mean over all clients",
}
COLUMNS = ["method", "panel", "moment", "round", "accuracy", "sd_seeds", "seeds"]


def curves_data(runs: Iterable[Run]) -> pd.DataFrame:
    """What the figure shows: mean accuracy over seeds and its SD (n - 1, NaN for one seed).

    `panel` is `global` or `personalised`; `moment` is `round` on a curve and `end` for the point at the end
    of the run.  A round that not every seed measured is left out, so a curve averages the same seeds
    throughout.
    """
    tables = [pd.DataFrame(columns=COLUMNS)]
    for label, group in group_runs(runs).items():
        measured = {
            ("global", "round"): [global_curve(run) for run in group],
            ("personalised", "round"): [personal_curve(run) for run in group],
            ("personalised", "end"): [end_of_run(run) for run in group],
        }
        for (panel, moment), curves in measured.items():
            points = _over_seeds(curves)
            tables.append(points.assign(method=label, panel=panel, moment=moment, seeds=len(group)))
    filled = [table for table in tables if len(table)] or tables[:1]
    return pd.concat(filled, ignore_index=True)[COLUMNS]


def _over_seeds(curves: list[pd.Series]) -> pd.DataFrame:
    together = pd.concat(curves, axis=1).dropna()
    frame = pd.DataFrame({"accuracy": together.mean(axis=1), "sd_seeds": together.std(axis=1, ddof=1)})
    return frame.rename_axis("round").reset_index()


def curves_figure(data: pd.DataFrame) -> Figure:
    """Draws both panels; bands are one SD over seeds, ringed points stand for the end of the run."""
    looks = appearances(data["method"])
    figure = Figure(figsize=(12.5, 4.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (panel, title) in zip(panels, PANELS.items(), strict=True):
        shown = data[data["panel"] == panel]
        for place, (label, look) in enumerate(looks.items()):
            curve = shown[(shown["method"] == label) & (shown["moment"] == "round")]
            draw_curve(axes, curve, look, place)
        draw_ends(axes, shown[shown["moment"] == "end"], looks)
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
    """Ticks at whole rounds, none beyond the last."""
    if len(shown):
        first, last = int(shown["round"].min()), int(shown["round"].max())
        ticks = MaxNLocator(nbins=9, integer=True).tick_values(min(first, last - 1), last)
        axes.set_xticks([tick for tick in ticks if min(first, 0) <= tick <= last])


def _handles(data: pd.DataFrame, looks: dict[str, Appearance]) -> list[Line2D]:
    """Legend entries, the best last personalised accuracy first, as the eye meets them at the right edge."""
    last = data[data["panel"] == "personalised"].groupby("method")["accuracy"].last()
    order = sorted(looks, key=lambda label: -last.get(label, -1.0))
    return [Line2D([], [], label=wrapped(label), **line_style(looks[label])) for label in order]
