"""How well probabilities are calibrated: ECE of every client, and the largest error of a bin, by method."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib.figure import Figure

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.bars import bars_figure
from idiolect.reports.grouping import group_runs
from idiolect.statistics import client_scores

__all__ = ["calibration_data", "calibration_figure"]

PANELS = {"ece": "Expected calibration error", "mce": "Largest error of a bin"}


def calibration_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Columns `panel`, `line` and `x` (the method), `value`, mean over clients, `sd` over clients (n - 1).

    Raises:
        UserError: calibration was not measured.
    """
    lines = []
    for label, group in group_runs(runs).items():
        for metric, panel in PANELS.items():
            seeds = [client_scores(run, metric=metric) for run in group]
            if all(len(values) for values in seeds):
                mean = sum(float(values.mean()) for values in seeds) / len(seeds)
                sd = sum(float(values.std(ddof=1)) for values in seeds) / len(seeds)
                lines.append((panel, label, "", mean, sd))
    if not lines:
        raise UserError("no run has measured calibration")
    return pd.DataFrame(lines, columns=["panel", "line", "x", "value", "sd"])


def calibration_figure(data: pd.DataFrame, methods: Iterable[str] = ()) -> Figure:
    """Draws bars with one SD over clients; lower is better."""
    return bars_figure(data, "", "Error", "Calibration, mean and SD over clients", lines=methods)
