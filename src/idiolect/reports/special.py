"""Pictures that only some runs can give: each is drawn where the records hold what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.calibration_figure import calibration_data, calibration_figure
from idiolect.reports.change_figure import change_data, change_figure
from idiolect.reports.degradation import degradation_data, degradation_figure
from idiolect.reports.grouping import group_runs
from idiolect.reports.heat_map import clients_heat_data, heat_figure
from idiolect.reports.profile import profile_data, profile_figure
from idiolect.reports.ranks import ranks_data, ranks_figure
from idiolect.reports.targets import targets_data, targets_figure
from idiolect.reports.teachers import teachers_data, teachers_figure
from idiolect.reports.zigzag import zigzag_data, zigzag_figure

__all__ = ["Special", "special_pictures"]


class Special(NamedTuple):
    """A picture and the numbers behind it."""

    figure: Figure
    data: pd.DataFrame


Maker = Callable[[list[Run]], pd.DataFrame]
Drawer = Callable[[pd.DataFrame, list[str]], Figure]  # of the numbers and all methods, for their colours

MAKERS: dict[str, tuple[Maker, Drawer]] = {
    "heat-map": (clients_heat_data, lambda data, _: heat_figure(data, column_label="Client", columns=1)),
    "change": (change_data, lambda data, _: change_figure(data)),
    "ranks": (ranks_data, ranks_figure),
    "calibration": (calibration_data, calibration_figure),
    "targets": (targets_data, targets_figure),
    "zigzag": (zigzag_data, lambda data, _: zigzag_figure(data)),
    "degradation": (degradation_data, degradation_figure),
    "profile": (profile_data, lambda data, methods: profile_figure(data, lines=methods)),
    "teachers": (teachers_data, teachers_figure),
}


def special_pictures(runs: Iterable[Run]) -> dict[str, Special]:
    """By name, what the runs can give; what they cannot is left out."""
    runs, found = list(runs), {}
    methods = list(group_runs(runs))
    for name, (make, draw) in MAKERS.items():
        try:
            data = make(runs)
        except UserError:
            continue
        if len(data):
            found[name] = Special(draw(data, methods), data)
    return found
