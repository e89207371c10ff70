"""Methods ranked over the scenes that runs were made in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from idiolect import statistics
from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.critical_difference import critical_difference_figure
from idiolect.reports.grouping import SCENE, group_runs

__all__ = ["ranks_data", "ranks_figure", "ranks_part"]


def ranks_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Scenes against methods: the headline's accuracy, mean over clients and seeds.

    A scene is a dataset with a partition and a network; a method that a scene lacks is left out.

    Raises:
        UserError: there are fewer than two scenes, or fewer than three methods in all of them.
    """
    scenes: dict[str, list[Run]] = {}
    for run in runs:
        name = ", ".join(str(run.manifest[key]) for key in SCENE if key in run.manifest)
        scenes.setdefault(name, []).append(run)
    groups = {name: group_runs(found) for name, found in scenes.items()}
    shared = [label for label in next(iter(groups.values()), {}) if all(label in g for g in groups.values())]
    if len(groups) < 2 or len(shared) < 3:
        raise UserError(f"ranks need three methods in each of two scenes, got {len(shared)} in {len(groups)}")
    chosen = {name: {label: found[label] for label in shared} for name, found in groups.items()}
    return statistics.scenario_table(chosen).rename_axis("scene")


def ranks_figure(data: pd.DataFrame, methods: Iterable[str] = ()) -> Figure:
    """The critical-difference picture of what `ranks_data` gives."""
    return critical_difference_figure(statistics.rank_methods(data), methods)


def ranks_part(runs: list[Run]) -> dict[str, Any] | None:
    """For the page: `methods` and their mean `ranks`, the best first, the critical `distance`, Friedman's `p`."""
    try:
        found = statistics.rank_methods(ranks_data(runs))
    except UserError:
        return None
    return {
        "methods": list(found.ranks.index),
        "ranks": found.ranks.tolist(),
        "distance": found.distance,
        "p": found.p_value,
        "level": found.level,
        "scenes": found.scenarios,
    }
