"""Which rows of a run the reports read.

The global accuracy is the predictor `global` on the server's test set.  The personalised accuracy is the
method's headline predictor on the test split of every client.  Where a round has measurements before and
after local training, those after it count; in the final numbers those at the end of the run go first.
"""

from __future__ import annotations

import math

import pandas as pd

from idiolect.records import Run

__all__ = ["end_of_run", "final_clients", "final_global", "global_curve", "personal_curve", "worst_tenth"]

MOMENT_ORDER = {"before": 0, "after": 1, "end": 2}
METRIC = "accuracy"


def global_curve(run: Run) -> pd.Series:
    """Accuracy of the global model on the server's test set, by round; empty where there is none."""
    rows = _rows(run, split="server", predictor="global")
    latest = rows.sort_values(["round", "order"], kind="stable").groupby("round")["value"].last()
    return latest.astype(float)


def final_global(run: Run) -> float:
    """The last point of the global curve, or NaN."""
    curve = global_curve(run)
    return float(curve.iloc[-1]) if len(curve) else math.nan


def personal_curve(run: Run) -> pd.Series:
    """Mean headline accuracy over all clients, by round, without what exists only at the end of the run."""
    rows = _headline(run)
    rows = rows[rows["moment"] != "end"]
    rows = rows[rows["order"] == rows.groupby("round")["order"].transform("max")]
    return rows.groupby("round")["value"].mean().astype(float)


def end_of_run(run: Run) -> pd.Series:
    """Mean headline accuracy over all clients at the end of the run, by its round, if measured."""
    rows = _headline(run)
    rows = rows[rows["moment"] == "end"]
    return rows.groupby("round")["value"].mean().astype(float).tail(1)


def final_clients(run: Run) -> pd.Series:
    """Headline accuracy by client: at the end of the run if measured then, else in the last round."""
    rows = _headline(run)
    if (rows["moment"] == "end").any():
        rows = rows[rows["moment"] == "end"]
    rows = rows[rows["round"] == rows["round"].max()]
    rows = rows[rows["order"] == rows["order"].max()]
    return rows.set_index("client")["value"].sort_index().astype(float)


def worst_tenth(values: pd.Series) -> float:
    """Mean accuracy of the worst tenth of the clients, rounded up to whole clients; NaN for none.

    >>> worst_tenth(pd.Series([0.9, 0.1, 0.3] + [1.0] * 8))
    0.2
    """
    return float(values.nsmallest(math.ceil(len(values) / 10)).mean()) if len(values) else math.nan


def _headline(run: Run) -> pd.DataFrame:
    return _rows(run, split="test", predictor=run.manifest.get("headline", "global"))


def _rows(run: Run, split: str, predictor: str) -> pd.DataFrame:
    rows = run.rows
    wanted = (rows["population"] == "all") & (rows["metric"] == METRIC) & rows["value"].notna()
    wanted &= (rows["population"] == "all") & (rows["split"] == split)
    rows = rows[wanted & (rows["predictor"] == predictor)]
    return rows.assign(order=rows["moment"].map(MOMENT_ORDER))
