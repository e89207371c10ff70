"""Which rows of a run the reports read.

The global accuracy is the predictor `global` on the server's test set.  The personalised accuracy is the
method's headline predictor on the test split of every client.  Where a round has measurements before and
after local training, those after it count; in the final numbers those at the end of the run go first.
"""

from __future__ import annotations

import math

import pandas as pd

from idiolect.records import Run
from idiolect.statistics import client_scores, curve, server_curve, worst_tenth

__all__ = ["end_of_run", "final_clients", "final_global", "global_curve", "personal_curve", "worst_tenth"]


def global_curve(run: Run) -> pd.Series:
    """Accuracy of the global model on the server's test set, by round; empty where there is none."""
    return server_curve(run)


def final_global(run: Run) -> float:
    """The last point of the global curve, or NaN."""
    points = global_curve(run)
    return float(points.iloc[-1]) if len(points) else math.nan


def personal_curve(run: Run) -> pd.Series:
    """Mean headline accuracy over all clients, by round, without what exists only at the end of the run."""
    return curve(run)


def end_of_run(run: Run) -> pd.Series:
    """Mean headline accuracy over all clients at the end of the run, by its round, if measured."""
    return curve(run, moment="end").tail(1)


def final_clients(run: Run) -> pd.Series:
    """Headline accuracy by client: at the end of the run if measured then, else in the last round."""
    return client_scores(run)
