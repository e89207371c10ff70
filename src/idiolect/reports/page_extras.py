"""What only some runs can show on the page: degradation, mixtures, teachers, the cost of a target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.degradation import degradation_data
from idiolect.reports.profile import profile_data
from idiolect.reports.targets import targets_data
from idiolect.reports.teachers import teachers_data

__all__ = ["extras_part"]

MAKERS: dict[str, Callable[[list[Run]], pd.DataFrame]] = {
    "targets": targets_data,
    "degradation": degradation_data,
    "profile": lambda runs: profile_data(runs).rename(columns={"alpha": "x"}),
    "teachers": teachers_data,
}


def extras_part(runs: list[Run], labels: list[str]) -> dict[str, Any]:
    """By name of the picture, one entry for each panel: `title`, and `lines` by method, nothing for one without.

    A line has `x`, `value` and `sd`, accuracies in percent, and `server` where a mixture has a global model.
    """
    found = {}
    for name, make in MAKERS.items():
        try:
            data = make(runs)
        except UserError:
            continue
        if len(data):
            found[name] = [_panel(title, here, labels) for title, here in data.groupby("panel", sort=False)]
    return found


def _panel(title: Any, here: pd.DataFrame, labels: list[str]) -> dict[str, Any]:
    kept = [name for name in ("x", "value", "sd", "server") if name in here]
    by_method = {label: line[kept].to_dict("list") for label, line in here.groupby("line", sort=False)}
    return {"title": str(title), "lines": [by_method.get(label) for label in labels]}
