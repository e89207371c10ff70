"""What it costs to reach a target: rounds and bytes against the accuracy that is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from idiolect.records import Run
from idiolect.reports.accuracies import end_of_run, personal_curve
from idiolect.reports.grouping import group_runs
from idiolect.reports.lines import lines_figure
from idiolect.statistics import cost_to_target

__all__ = ["targets_data", "targets_figure"]

STEPS = 24
PANELS = ("Rounds", "Megabytes down", "Megabytes up")


def targets_data(runs: Iterable[Run], targets: Sequence[float] | None = None) -> pd.DataFrame:
    """Columns `panel`, `line` (the method), `x` (the target in percent), `value`: mean over seeds.

    The mean over all clients of the headline is what has to reach the target.  A target that a seed never reaches has
    no row; a model that exists only at the end of the run costs the whole run.

    Args:
        targets: in [0, 1]; without them, steps from the lowest to the highest value measured.
    """
    curves = {
        label: [(end_of_run(run).combine_first(personal_curve(run)), run.rounds) for run in group]
        for label, group in group_runs(runs).items()
    }
    if targets is None:
        values = pd.concat([points for group in curves.values() for points, _ in group])
        targets = np.linspace(values.min(), values.max(), STEPS) if len(values) else []
    lines = []
    for label, group in curves.items():
        for target in targets:
            costs = [cost_to_target(points, rounds, target) for points, rounds in group]
            if any(cost.round is None for cost in costs):
                continue
            found = np.mean([(c.round, c.bytes_down / 1e6, c.bytes_up / 1e6) for c in costs], axis=0)
            lines += [
                (panel, label, 100 * target, float(value)) for panel, value in zip(PANELS, found, strict=True)
            ]
    return pd.DataFrame(lines, columns=["panel", "line", "x", "value"])


def targets_figure(data: pd.DataFrame, methods: Iterable[str] = ()) -> Figure:
    """Draws what `targets_data` gives; a line ends where its method gets no further."""
    ordered = data.sort_values("panel", key=lambda panels: panels.map(PANELS.index), kind="stable")
    x_label = "Personalised accuracy to be reached (%)"
    return lines_figure(ordered, x_label, "Cost of reaching a target", lines=methods)
