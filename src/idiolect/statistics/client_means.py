"""Mean values over clients: the selected, all, or newcomers; and the trade-off with the global model."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from idiolect.errors import refuse_outside
from idiolect.records import Run
from idiolect.statistics.client_tables import Groups
from idiolect.statistics.measurements import client_scores, curve, headline, primary_metric
from idiolect.statistics.reading import LAST, Reading
from idiolect.statistics.replicates import over_replicates
from idiolect.statistics.run_numbers import global_score

__all__ = ["Window", "end_mean", "personalisation", "tradeoff", "window_mean"]


def personalisation(run: Run, metric: str | None = None) -> pd.DataFrame:
    """Returns the last measurement of every predictor, by population and moment.

    Columns: `population` (selected, all, new), `moment` (before, after, end), `predictor`, `headline` (whether it
    is the method's headline predictor), `round`, `clients`, `mean` over the clients with equal weights.
    """
    metric = metric or primary_metric(run)
    rows = run.rows[(run.rows["metric"] == metric) & (run.rows["split"] == "test")]
    keys = ["population", "moment", "predictor"]
    last = rows[rows["round"] == rows.groupby(keys)["round"].transform("max")]
    by_kind = last.groupby(keys, sort=False)
    found = by_kind.agg(round=("round", "first"), clients=("client", "size"), mean=("value", "mean"))
    found = found.reset_index()
    found.insert(3, "headline", found["predictor"] == headline(run))
    return found


class Window(NamedTuple):
    """A mean over rounds; `rounds` counts those that were measured."""

    value: float
    rounds: int


def window_mean(
    run: Run,
    first: int,
    last: int,
    predictor: str | None = None,
    *,
    metric: str | None = None,
    population: str = "selected",
    moment: str | None = "after",
) -> Window:
    """Returns the mean over clients, averaged over the rounds `first` to `last`; NaN where none was measured."""
    points = curve(run, predictor, metric=metric, population=population, moment=moment)
    points = points[(points.index >= first) & (points.index <= last)]
    return Window(float(points.mean()), len(points))


def end_mean(
    run: Run, predictor: str | None = None, *, rounds: int = 10, metric: str | None = None
) -> Window:
    """Returns FedPHP's "End": the selected clients after local training, averaged over the last rounds of the run.

    Args:
        predictor: None is the headline; FedPHP takes ``after-local`` for methods without a private model.
        rounds: how many; with ``observe=always`` each of them was measured.
    """
    refuse_outside("rounds", rounds, 1)
    total = int(run.rounds["round"].max())
    return window_mean(run, total - rounds + 1, total, predictor, metric=metric)


def tradeoff(groups: Groups, metric: str | None = None, *, reading: Reading = LAST) -> pd.DataFrame:
    """Returns aggregation against personalisation, one row per method (MAP, figure 9).

    Columns: `method`, `predictor`, `seeds`, and, each as the mean over seeds with its SD (n - 1): `aggregation`, the
    global model on the server's test set (NaN for a method without one), and `personalisation`, the
    headline's mean over all clients.
    """
    lines = []
    for label, runs in groups.items():
        line = {"method": label, "predictor": headline(runs[0]), "seeds": len(runs)}
        points = pd.DataFrame([_point(run, metric, reading) for run in runs])
        for name in points:
            found = over_replicates(runs, points[name])
            line |= {name: found.mean, f"{name}_sd_seeds": found.sd}
        lines.append(line)
    return pd.DataFrame(lines)


def _point(run: Run, metric: str | None, reading: Reading) -> dict[str, float]:
    return {
        "aggregation": global_score(run, metric, reading=reading),
        "personalisation": float(client_scores(run, metric=metric, reading=reading).mean()),
    }
