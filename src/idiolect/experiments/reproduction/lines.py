"""Lines of a figure: which experiments they need, and what each kind of figure takes from a run.

Every kind gives a table of points for each run and one number that sums it up.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from idiolect.errors import UserError
from idiolect.experiments.papers import Reading
from idiolect.experiments.reproduction.readings import by_client, by_round, rows_of, value
from idiolect.records import Run

__all__ = ["EVERY_ROUND", "SUMMARIES", "TAKES", "gains"]

ALPHAS = tuple(f"{alpha / 10:.1f}" for alpha in range(11))
EVERY_ROUND = ("zigzag", "degradation")  # kinds that look at single rounds
BEFORE = ("global", "composed")  # what a client downloads, where the personalised model is the trained one


def _spread(run: Run, reading: Reading) -> pd.DataFrame:
    return by_round(run, reading)


def _curve(run: Run, reading: Reading) -> pd.DataFrame:
    return by_round(run, reading).drop(columns="sd")


def _clients(run: Run, reading: Reading) -> pd.DataFrame:
    return by_client(run, reading).rename("value").reset_index()


def _final(run: Run, reading: Reading) -> pd.DataFrame:
    return pd.DataFrame({"value": [float(value(run, reading).mean())]})


def _profile(run: Run, reading: Reading) -> pd.DataFrame:
    """Mean and SD (n) over clients in the last round, by mixing coefficient."""
    last = int(run.manifest["spec"]["rounds"])
    points = []
    for alpha in ALPHAS:
        rows = rows_of(run, reading, predictor=f"{reading.predictor}{alpha})")
        found = rows[rows["round"] == last]["value"]
        points.append({"alpha": float(alpha), "value": found.mean(), "sd": found.std(ddof=0)})
    return pd.DataFrame(points)


def _zigzag(run: Run, reading: Reading) -> pd.DataFrame:
    """Every selected client's downloaded and personalised model, by round: `before`, `value`, their difference."""
    after = rows_of(run, reading, moment="after").set_index(["client", "round"])["value"]
    before = _downloaded(run, reading).set_index(["client", "round"])["value"]
    points = pd.DataFrame({"before": before, "after": after}).reset_index()
    return points.assign(value=points["after"] - points["before"])


def _degradation(run: Run, reading: Reading) -> pd.DataFrame:
    """Mean over the clients selected in a round, from their second time on, of what the download loses."""
    points = _zigzag(run, reading).sort_values(["client", "round"], kind="stable")
    lost = points["before"] - points.groupby("client")["after"].shift(1)
    found = points.assign(value=lost).dropna(subset="value")
    if found.empty:
        raise UserError(f"run {run.manifest['name']} selected no client twice")
    return found.groupby("round")["value"].mean().reset_index()


def _downloaded(run: Run, reading: Reading) -> pd.DataFrame:
    names = BEFORE if reading.predictor == "after-local" else (reading.predictor,)
    present = set(run.rows["predictor"])
    name = next((name for name in names if name in present), names[0])
    return rows_of(run, reading, moment="before", predictor=name)


TAKES: dict[str, Callable[[Run, Reading], pd.DataFrame]] = {
    "curves": _curve,
    "spread": _spread,
    "zigzag": _zigzag,
    "degradation": _degradation,
    "final": _final,
    "clients": _clients,
    "change": _clients,
    "profile": _profile,
}
SUMMARIES: dict[str, tuple[str, Callable[[pd.DataFrame], float]]] = {
    "curves": ("last round", lambda points: float(points["value"].iloc[-1])),
    "spread": ("last round", lambda points: float(points["value"].iloc[-1])),
    "zigzag": ("mean gain by local training", lambda points: float(points["value"].mean())),
    "degradation": ("mean over rounds", lambda points: float(points["value"].mean())),
    "final": ("value", lambda points: float(points["value"].iloc[0])),
    "clients": ("mean over clients", lambda points: float(points["value"].mean())),
    "change": ("clients that lose", lambda points: float(np.sum(points["value"] < 0))),
    "profile": ("best mean", lambda points: float(points["value"].max())),
}


def gains(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """What every client gains from one line to the other."""
    merged = old.merge(new, on="client", suffixes=("_old", "_new"))
    return pd.DataFrame({"client": merged["client"], "value": merged["value_new"] - merged["value_old"]})
