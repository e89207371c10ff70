"""What a sweep takes from a run: the validation accuracy it chooses by, and what the choice is worth."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.accuracies import final_clients, final_global

__all__ = ["Scores", "scores"]


class Scores(NamedTuple):
    """Accuracies in [0, 1], means over clients; ``server`` is NaN for a method without a global model."""

    valid: float
    test: float
    server: float


def scores(run: Run) -> Scores:
    """Of the method's headline predictor, after everything."""
    return Scores(_valid(run), float(final_clients(run).mean()), final_global(run))


def _valid(run: Run) -> float:
    """The headline predictor on all clients' validation data, at the last moment at which it was measured."""
    headline = str(run.manifest["headline"])
    predictor = str(run.manifest.get("choices", {}).get(headline, headline))
    rows = run.rows
    wanted = (rows["split"] == "valid") & (rows["metric"] == "accuracy") & (rows["population"] == "all")
    rows = rows[wanted & (rows["predictor"] == predictor)]
    if rows.empty:
        raise UserError(f"run {run.manifest['name']} was not scored on validation data")
    last: pd.DataFrame = rows[rows["round"] == rows["round"].max()]
    if (last["moment"] == "end").any():
        last = last[last["moment"] == "end"]
    return float(last["value"].mean())
