"""Aggregation against personalisation: one point per method (MAP, figure 9)."""

from __future__ import annotations

import math

import pandas as pd

from idiolect.records import Run
from idiolect.statistics.measurements import client_scores, headline, server_curve
from idiolect.statistics.users import Groups

__all__ = ["tradeoff"]


def tradeoff(groups: Groups, metric: str = "accuracy") -> pd.DataFrame:
    """One row per method: `method`, `predictor`, `seeds`, and each as the mean over seeds with its SD (n - 1):

    `aggregation`, the global model on the server's test set in the last round, NaN for a method without one, and
    `personalisation`, the headline's mean over all clients.
    """
    lines = []
    for label, runs in groups.items():
        seeds = pd.DataFrame([_point(run, metric) for run in runs])
        mean, sd = seeds.mean(skipna=False), seeds.std(ddof=1, skipna=False)
        line = {"method": label, "predictor": headline(runs[0]), "seeds": len(runs)}
        for name in seeds:
            line |= {name: mean[name], f"{name}_sd_seeds": sd[name]}
        lines.append(line)
    return pd.DataFrame(lines)


def _point(run: Run, metric: str) -> dict[str, float]:
    shared = server_curve(run, metric)
    return {
        "aggregation": float(shared.iloc[-1]) if len(shared) else math.nan,
        "personalisation": float(client_scores(run, metric=metric).mean()),
    }
