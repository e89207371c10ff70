"""The round at which each client's teacher was kept (PersFL, figure 2)."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib.figure import Figure

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.bars import bars_figure
from idiolect.reports.grouping import group_runs
from idiolect.statistics import teacher_rounds

__all__ = ["teachers_data", "teachers_figure"]


def teachers_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Columns `panel`, `line` (the method), `x` (the client), `value` (the round, mean over seeds).

    Methods that keep no teacher are left out.

    Raises:
        UserError: no run says anything of teachers.
    """
    tables = []
    for label, group in group_runs(runs).items():
        try:
            found = teacher_rounds(group)
        except UserError:
            continue
        table = pd.DataFrame({"x": found.index, "value": found["round"].to_numpy()})
        tables.append(table.assign(panel="Mean over seeds", line=label))
    if not tables:
        raise UserError("no run says anything of teachers; PersFL records them")
    return pd.concat(tables, ignore_index=True)[["panel", "line", "x", "value"]]


def teachers_figure(data: pd.DataFrame, methods: Iterable[str] = ()) -> Figure:
    """Draws one bar for each client and method."""
    title = "Round at which each client's teacher was kept"
    return bars_figure(data, "Client", "Round", title, lines=methods)
