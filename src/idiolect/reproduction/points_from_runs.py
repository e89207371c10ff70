"""The points that each kind of figure takes from a run, and the number that sums up a line of such a figure."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reproduction.papers import MetricReading
from idiolect.reproduction.papers.metric_reading import means_by_client, means_by_round, read_values
from idiolect.statistics import alpha_profile, before_and_after, degradation, server_curve

__all__ = ["KINDS_OF_SINGLE_ROUNDS", "LINE_SUMMARIES", "ORACLE_KINDS", "POINTS_OF_RUN", "client_gains"]

KINDS_OF_SINGLE_ROUNDS = ("zigzag", "degradation")
ORACLE_KINDS = ("profile",)  # their number is the best of several on test data
NO_DELTA = {"selection": "selected no client twice", "round": "evaluated all clients in no observed round"}


def _spread(run: Run, reading: MetricReading) -> pd.DataFrame:
    return means_by_round(run, reading)


def _curve(run: Run, reading: MetricReading) -> pd.DataFrame:
    return means_by_round(run, reading).drop(columns="sd")


def _clients(run: Run, reading: MetricReading) -> pd.DataFrame:
    return means_by_client(run, reading).rename("value").reset_index()


def _final(run: Run, reading: MetricReading) -> pd.DataFrame:
    return pd.DataFrame({"value": [float(read_values(run, reading).mean())]})


def _profile(run: Run, reading: MetricReading) -> pd.DataFrame:
    """Returns mean and SD (n) over clients at the end by mixing coefficient, and the global model's server score."""
    found, shared = alpha_profile([run], reading.metric), server_curve(run, reading.metric)
    numbers = {"alpha": found["alpha"], "value": found["mean"], "sd": found["sd_clients_ddof0"]}
    return pd.DataFrame({**numbers, "server": float(shared.iloc[-1]) if len(shared) else math.nan})


def _zigzag(run: Run, reading: MetricReading) -> pd.DataFrame:
    """Returns `before`, `after` and their difference, for every selected client's local training by round."""
    which, points = _model_of(reading), before_and_after(run, reading.metric)
    found = points.rename(columns={f"{which}_before": "before", f"{which}_after": "after"})
    return found[["client", "round", "before", "after"]].assign(value=found["after"] - found["before"])


def _degradation(run: Run, reading: MetricReading) -> pd.DataFrame:
    """Returns by round what the download loses against the last personalised model, as mean over selected clients."""
    found = degradation(run, reading.metric, at=reading.delta)
    if found.empty:
        raise UserError(f"run {run.manifest['name']} {NO_DELTA[reading.delta]}")
    return found.groupby("round")[f"delta_{_model_of(reading)}"].mean().rename("value").reset_index()


def _model_of(reading: MetricReading) -> str:
    """Returns whether the shared model is meant, or the one that the method deploys."""
    return "shared" if reading.predictor == "after-local" else "deployed"


POINTS_OF_RUN: dict[str, Callable[[Run, MetricReading], pd.DataFrame]] = {
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


def _first(points: pd.DataFrame) -> float:
    return float(points["value"].iloc[0])


def _last(points: pd.DataFrame) -> float:
    return float(points["value"].iloc[-1])


def _mean(points: pd.DataFrame) -> float:
    return float(points["value"].mean())


def _maximum(points: pd.DataFrame) -> float:
    return float(points["value"].max())


def _negative(points: pd.DataFrame) -> float:
    return float(np.sum(points["value"] < 0))


LINE_SUMMARIES: dict[str, tuple[str, Callable[[pd.DataFrame], float]]] = {
    "curves": ("last round", _last),
    "spread": ("last round", _last),
    "zigzag": ("mean gain by local training", _mean),
    "degradation": ("mean over rounds", _mean),
    "grid": ("value", _first),
    "settings": ("value", _first),
    "clients": ("mean over clients", _mean),
    "users": ("mean over clients", _mean),
    "change": ("clients that lose", _negative),
    "profile": ("best mean (oracle: picked on test data)", _maximum),
}


def client_gains(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Returns what every client gains from one line to the other."""
    merged = old.merge(new, on="client", suffixes=("_old", "_new"))
    return pd.DataFrame({"client": merged["client"], "value": merged["value_new"] - merged["value_old"]})
