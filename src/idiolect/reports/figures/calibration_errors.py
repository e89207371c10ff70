"""Calibration errors by method, mean and SD over clients."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib.figure import Figure

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.figures.charts import bars_figure
from idiolect.reports.run_groups import group_runs
from idiolect.statistics import LAST, Reading, client_scores, over_replicates

__all__ = ["calibration_data", "calibration_figure"]

CALIBRATION_ERRORS = {"ece": "Expected calibration error", "mce": "Largest error of a bin"}


def calibration_data(runs: Iterable[Run], reading: Reading = LAST) -> pd.DataFrame:
    """Returns calibration errors: `panel`, `line` (the method), `x`, `value` (mean over clients), `sd` (n - 1).

    Raises:
        UserError: calibration was not measured.
    """
    lines = []
    for label, group in group_runs(runs).items():
        for metric, panel in CALIBRATION_ERRORS.items():
            seeds = [client_scores(run, metric=metric, reading=reading) for run in group]
            if all(len(values) for values in seeds):
                mean = over_replicates(group, [float(values.mean()) for values in seeds]).mean
                sd = over_replicates(group, [float(values.std(ddof=1)) for values in seeds]).mean
                lines.append((panel, label, "", mean, sd))
    if not lines:
        raise UserError("no run has measured calibration")
    return pd.DataFrame(lines, columns=["panel", "line", "x", "value", "sd"])


def calibration_figure(data: pd.DataFrame, methods: Iterable[str] = ()) -> Figure:
    """Draws bars with one SD over clients; lower is better."""
    return bars_figure(data, "", "Error", "Calibration, mean and SD over clients", lines=methods)
