"""Lines of a figure: which experiments they need, and what each kind of figure takes from a run.

Every kind gives a table of points for each run and one number that sums it up.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from idiolect.errors import UserError
from idiolect.experiments.papers import Reading
from idiolect.experiments.reproduction.readings import by_client, by_round, value
from idiolect.records import Run
from idiolect.statistics import alpha_profile, before_and_after, degradation, server_curve

__all__ = ["EVERY_ROUND", "ORACLES", "SUMMARIES", "TAKES", "gains"]

NO_DELTA = {"selection": "selected no client twice", "round": "evaluated all clients in no observed round"}
EVERY_ROUND = ("zigzag", "degradation")  # kinds that look at single rounds
ORACLES = ("profile",)  # kinds whose number is the best of several on test data


def _spread(run: Run, reading: Reading) -> pd.DataFrame:
    return by_round(run, reading)


def _curve(run: Run, reading: Reading) -> pd.DataFrame:
    return by_round(run, reading).drop(columns="sd")


def _clients(run: Run, reading: Reading) -> pd.DataFrame:
    return by_client(run, reading).rename("value").reset_index()


def _final(run: Run, reading: Reading) -> pd.DataFrame:
    return pd.DataFrame({"value": [float(value(run, reading).mean())]})


def _profile(run: Run, reading: Reading) -> pd.DataFrame:
    """Mean and SD (n) over clients at the end by mixing coefficient, and the global model on the server's test set."""
    found, shared = alpha_profile([run], reading.metric), server_curve(run, reading.metric)
    numbers = {"alpha": found["alpha"], "value": found["mean"], "sd": found["sd_clients_ddof0"]}
    return pd.DataFrame({**numbers, "server": float(shared.iloc[-1]) if len(shared) else math.nan})


def _zigzag(run: Run, reading: Reading) -> pd.DataFrame:
    """Every selected client's downloaded and personalised model, by round: `before`, `after`, their difference."""
    which, points = _which(reading), before_and_after(run, reading.metric)
    found = points.rename(columns={f"{which}_before": "before", f"{which}_after": "after"})
    return found[["client", "round", "before", "after"]].assign(value=found["after"] - found["before"])


def _degradation(run: Run, reading: Reading) -> pd.DataFrame:
    """Mean over the clients selected in a round of what the download loses against their last personalised model."""
    found = degradation(run, reading.metric, at=reading.delta)
    if found.empty:
        raise UserError(f"run {run.manifest['name']} {NO_DELTA[reading.delta]}")
    return found.groupby("round")[f"delta_{_which(reading)}"].mean().rename("value").reset_index()


def _which(reading: Reading) -> str:
    """The main model, or the one that stands for the method."""
    return "shared" if reading.predictor == "after-local" else "deployed"


TAKES: dict[str, Callable[[Run, Reading], pd.DataFrame]] = {
    "curves": _curve,
    "spread": _spread,
    "zigzag": _zigzag,
    "degradation": _degradation,
    "grid": _final,
    "settings": _final,
    "clients": _clients,
    "users": _clients,
    "change": _clients,
    "profile": _profile,
}
SUMMARIES: dict[str, tuple[str, Callable[[pd.DataFrame], float]]] = {
    "curves": ("last round", lambda points: float(points["value"].iloc[-1])),
    "spread": ("last round", lambda points: float(points["value"].iloc[-1])),
    "zigzag": ("mean gain by local training", lambda points: float(points["value"].mean())),
    "degradation": ("mean over rounds", lambda points: float(points["value"].mean())),
    "grid": ("value", lambda points: float(points["value"].iloc[0])),
    "settings": ("value", lambda points: float(points["value"].iloc[0])),
    "clients": ("mean over clients", lambda points: float(points["value"].mean())),
    "users": ("mean over clients", lambda points: float(points["value"].mean())),
    "change": ("clients that lose", lambda points: float(np.sum(points["value"] < 0))),
    "profile": ("best mean (oracle: picked on test data)", lambda points: float(points["value"].max())),
}


def gains(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """What every client gains from one line to the other."""
    merged = old.merge(new, on="client", suffixes=("_old", "_new"))
    return pd.DataFrame({"client": merged["client"], "value": merged["value_new"] - merged["value_old"]})
