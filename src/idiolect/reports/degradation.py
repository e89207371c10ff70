"""What a client loses when it downloads again: mean over the selected, by round (FedPHP, figure 6)."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib.figure import Figure

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.grouping import group_runs
from idiolect.reports.lines import lines_figure
from idiolect.statistics import degradation

__all__ = ["degradation_data", "degradation_figure"]

PANELS = {"delta_shared": "Main model", "delta_deployed": "Model that stands for the method"}


def degradation_data(runs: Iterable[Run], at: str = "selection") -> pd.DataFrame:
    """Columns `panel`, `line` (the method), `x` (the round), `value` in points, `sd` over seeds (n - 1).

    A round counts where every seed selected somebody a second time.  Methods whose runs did not observe every round are
    left out.

    Args:
        at: of ``idiolect.statistics.degradation``: the client's next ``selection``, or the next ``round``.

    Raises:
        UserError: none did, or nobody was selected twice.
    """
    tables = []
    for label, group in group_runs(runs).items():
        try:
            by_seed = [degradation(run, at=at).groupby("round")[list(PANELS)].mean() for run in group]
        except UserError:
            continue
        for name, panel in PANELS.items():
            together = 100 * pd.concat([means[name] for means in by_seed], axis=1).dropna()
            found = pd.DataFrame({"value": together.mean(axis=1), "sd": together.std(axis=1, ddof=1)})
            tables.append(found.rename_axis("x").reset_index().assign(panel=panel, line=label))
    filled = [table for table in tables if len(table)]
    if not filled:
        raise UserError("local degradation needs runs with observe=always that select a client twice")
    return pd.concat(filled, ignore_index=True)[["panel", "line", "x", "value", "sd"]]


def degradation_figure(data: pd.DataFrame, methods: Iterable[str] = ()) -> Figure:
    """Draws what `degradation_data` gives; below 0 the download is worse than what the client had made."""
    title = "Downloaded model less the client's last personalised one"
    figure = lines_figure(data, "Round", title, y_label="Change of accuracy (points)", lines=methods)
    for axes in figure.axes:
        axes.axhline(0, color="#777777", linewidth=1)
    return figure
