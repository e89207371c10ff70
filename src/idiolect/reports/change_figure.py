"""What every client gains or loses by going from one method to another, as a histogram (MAP, figure 10)."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.appearance import COLOURS, INK
from idiolect.reports.grouping import group_runs
from idiolect.reports.panels import label_panel, make_panels
from idiolect.statistics import change_histogram, changes

__all__ = ["change_data", "change_figure"]

GAIN, LOSS = COLOURS[0], COLOURS[1]
REFERENCE = "fedavg"


def change_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Columns `panel`, `client`, `value` in points: every method against FedAvg, or against the first without it.

    A method with other seeds or clients than the reference cannot be paired and is left out.

    Raises:
        UserError: no two methods can be paired.
    """
    groups = group_runs(runs)
    named = (label for label, group in groups.items() if group[0].manifest["method"].startswith(REFERENCE))
    reference = next(named, next(iter(groups)))
    tables = []
    for label, group in groups.items():
        if label == reference:
            continue
        try:
            found = 100 * changes(group, groups[reference])
        except UserError:
            continue
        table = found.rename("value").rename_axis("client").reset_index()
        tables.append(table.assign(panel=f"{label} against {reference}"))
    if not tables:
        raise UserError(f"no method has the same seeds and clients as {reference}")
    return pd.concat(tables, ignore_index=True)[["panel", "client", "value"]]


def change_figure(points: pd.DataFrame, title: str = "", *, bins: int = 20) -> Figure:
    """Draws one histogram for each `panel`, with counts on the bars and an edge at 0.

    Args:
        points: columns `panel`, `client`, `value`; several seeds are averaged by client first.
    """
    panels = list(dict.fromkeys(points["panel"]))
    figure, grid = make_panels(len(panels), title)
    for axes, panel in zip(grid, panels, strict=True):
        values = points[points["panel"] == panel].groupby("client")["value"].mean()
        below = _histogram(axes, values, bins)
        heading = f"{panel}\n{below} of {len(values)} clients lose"
        label_panel(axes, heading, "Change of accuracy (points)", "Clients", grid="y")
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    return figure


def _histogram(axes: Axes, values: pd.Series, bins: int) -> int:
    found = change_histogram(values, bins)
    width = found.edges[1] - found.edges[0]
    for edge, count in zip(found.edges[:-1], found.counts, strict=True):
        if count:
            colour = LOSS if edge < -width / 2 else GAIN
            axes.bar(edge, count, width, align="edge", color=colour, edgecolor="white")
            axes.text(edge + width / 2, count, str(count), ha="center", va="bottom", fontsize=8, color=INK)
    axes.axvline(0, color=INK, linewidth=1)
    axes.margins(y=0.15)
    return found.below
