"""Personalisation: the mean over clients, of the selected, of all, of those who came after the run."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from idiolect.errors import refuse_outside
from idiolect.records import Run
from idiolect.statistics.measurements import curve, headline

__all__ = ["Window", "end_mean", "personalisation", "window_mean"]


def personalisation(run: Run, metric: str = "accuracy") -> pd.DataFrame:
    """The last measurement of every predictor, by population and moment.

    Columns: `population` (selected, all, new), `moment` (before, after, end), `predictor`, `headline` (whether it
    stands for the method), `round`, `clients`, `mean` over the clients, each weighing the same.
    """
    rows = run.rows[(run.rows["metric"] == metric) & (run.rows["split"] == "test")]
    keys = ["population", "moment", "predictor"]
    last = rows[rows["round"] == rows.groupby(keys)["round"].transform("max")]
    by_kind = last.groupby(keys, sort=False)
    found = by_kind.agg(round=("round", "first"), clients=("client", "size"), mean=("value", "mean"))
    found = found.reset_index()
    found.insert(3, "headline", found["predictor"] == headline(run))
    return found


class Window(NamedTuple):
    """A mean over rounds; `rounds` is how many of them were measured."""

    value: float
    rounds: int


def window_mean(
    run: Run,
    first: int,
    last: int,
    predictor: str | None = None,
    *,
    metric: str = "accuracy",
    population: str = "selected",
    moment: str | None = "after",
) -> Window:
    """Mean over the rounds `first` to `last` of the mean over clients; NaN where none was measured."""
    points = curve(run, predictor, metric=metric, population=population, moment=moment)
    points = points[(points.index >= first) & (points.index <= last)]
    return Window(float(points.mean()), len(points))


def end_mean(run: Run, predictor: str | None = None, *, rounds: int = 10, metric: str = "accuracy") -> Window:
    """ "End" of FedPHP: the selected clients after local training, mean over the last rounds of the run.

    Args:
        predictor: None is the headline; FedPHP takes ``after-local`` for methods without a private model.
        rounds: each is measured where the experiment says ``observe=always``.
    """
    refuse_outside("rounds", rounds, 1)
    total = int(run.rounds["round"].max())
    return window_mean(run, total - rounds + 1, total, predictor, metric=metric)
