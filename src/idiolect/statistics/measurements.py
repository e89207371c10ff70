"""Selects the measurements of a run that a number is computed from: by round and client, as curves, or final values.

A round may hold measurements of several moments: before local training, after it, and at the end of the run.  Without
a given moment the latest one counts, and without a given metric the one that the run is judged by.  A predictor that is
chosen from a family is scored on all clients together, so rows of the selected clients hold only the members of the
family: there the member chosen at the end stands for it.
"""

from __future__ import annotations

import math

import pandas as pd

from idiolect.errors import UserError
from idiolect.records import Run, divergence_of
from idiolect.statistics.reading import LAST, Reading

__all__ = [
    "client_samples",
    "client_scores",
    "curve",
    "headline",
    "higher_is_better",
    "is_share",
    "measured",
    "metric_bounds",
    "primary_metric",
    "read_rounds",
    "server_curve",
    "validated_round",
]

ORDER = {"before": 0, "after": 1, "end": 2}
COLUMNS = ["round", "client", "moment", "value"]


def headline(run: Run) -> str:
    """Returns the headline predictor, whose numbers represent the method."""
    return str(run.manifest.get("headline", "global"))


def primary_metric(run: Run) -> str:
    """Returns the metric that the run is judged by; runs that do not name one are judged by accuracy."""
    return str(run.manifest.get("primary_metric", "accuracy"))


def is_share(run: Run, metric: str) -> bool:
    """Returns whether values of a metric are shares, shown in percent; without a unit those that end at 1 are."""
    described = run.manifest.get("metrics", {}).get(metric, {})
    if "unit" in described:
        return bool(described["unit"] == "share")
    return bool(described.get("high", 1 if metric == "accuracy" else None) == 1)


def metric_bounds(run: Run, metric: str) -> tuple[float, float]:
    """Returns the least and the greatest value that a metric can have, such as 0 and 1; infinite where it has none."""
    described = run.manifest.get("metrics", {}).get(metric, {})
    default = (0.0, 1.0) if is_share(run, metric) else (None, None)
    low, high = (described.get(key, end) for key, end in zip(("low", "high"), default, strict=True))
    return (-math.inf if low is None else float(low)), (math.inf if high is None else float(high))


def higher_is_better(run: Run, metric: str) -> bool:
    """Returns whether higher values of a metric are better, as the run's manifest says; for accuracy they are.

    Raises:
        UserError: the manifest does not describe the metric.
    """
    described = run.manifest.get("metrics", {})
    if metric in described:
        return bool(described[metric]["higher_is_better"])
    if metric == "accuracy":
        return True
    raise UserError(f"{run.manifest['name']} does not say which way the metric {metric!r} is better")


def measured(
    run: Run,
    predictor: str | None = None,
    *,
    metric: str | None = None,
    population: str = "all",
    split: str = "test",
    moment: str | None = None,
) -> pd.DataFrame:
    """Returns one value for each round and client, in the columns `round`, `client`, `moment`, `value`.

    Args:
        predictor: None is the method's headline.
        moment: None takes the latest of each round.
    """
    return _wanted_rows(run, predictor, metric, population, split, moment)[COLUMNS].reset_index(drop=True)


def _wanted_rows(
    run: Run,
    predictor: str | None,
    metric: str | None,
    population: str,
    split: str,
    moment: str | None = None,
) -> pd.DataFrame:
    """Returns the rows behind `measured`, with all columns of the record."""
    name = predictor or headline(run)
    if population == "selected":
        name = run.manifest.get("choices", {}).get(name, name)
    rows = run.rows
    metric = metric or primary_metric(run)
    wanted = (rows["population"] == population) & (rows["metric"] == metric) & (rows["split"] == split)
    rows = rows[wanted & (rows["predictor"] == name) & rows["value"].notna()]
    if moment is not None:
        rows = rows[rows["moment"] == moment]
    if rows["moment"].nunique() > 1:
        order = rows["moment"].map(ORDER)
        rows = rows[order == order.groupby(rows["round"]).transform("max")]
    return rows


def curve(
    run: Run,
    predictor: str | None = None,
    *,
    metric: str | None = None,
    population: str = "all",
    split: str = "test",
    moment: str | None = None,
) -> pd.Series:
    """Returns the mean over clients by round; values at the end of the run count only with ``moment="end"``."""
    rows = run.rows
    kept = run if moment is not None else run._replace(rows=rows[rows["moment"] != "end"])
    found = measured(kept, predictor, metric=metric, population=population, split=split, moment=moment)
    return found.groupby("round")["value"].mean().astype(float)


def server_curve(run: Run, metric: str | None = None) -> pd.Series:
    """Returns the global model's values on the server's test set by round; empty without a global model."""
    return curve(run, "global", metric=metric, split="server")


def client_scores(
    run: Run,
    predictor: str | None = None,
    *,
    metric: str | None = None,
    population: str = "all",
    split: str = "test",
    reading: Reading = LAST,
) -> pd.Series:
    """Returns the final value by client: at the end of the run if measured then, else by the rule of `reading`.

    Raises:
        UserError: the run diverged, or the reading is `validated` and the run has no scores on validation data.
    """
    if (diverged := divergence_of(run.manifest)) is not None:
        raise UserError(f"run {run.manifest['name']} {diverged.text} and has no final values")
    kept = _final_rows(run, predictor, metric, population, split, reading)
    return kept.groupby("client")["value"].mean().astype(float)


def client_samples(
    run: Run,
    predictor: str | None = None,
    *,
    metric: str | None = None,
    population: str = "all",
    reading: Reading = LAST,
) -> pd.Series:
    """Returns by client the rows of test data behind its final value; clients without such a count are left out.

    They are those of the evaluations that `client_scores` reads, because a client's test data may change while a run
    goes on; where a reading takes several, they are averaged.
    """
    kept = _final_rows(run, predictor, metric, population, "test", reading)
    if "samples" not in kept:
        return pd.Series(dtype=float)
    counted = kept.groupby("client")["samples"].agg(["min", "mean"])
    return counted["mean"][counted["min"] > 0].astype(float)


def _final_rows(
    run: Run, predictor: str | None, metric: str | None, population: str, split: str, reading: Reading
) -> pd.DataFrame:
    """Returns the rows that final values are read from: of the end of the run, else by the rule of `reading`."""
    found = _wanted_rows(run, predictor, metric, population, split)
    if (found["moment"] == "end").any():
        found = found[found["moment"] == "end"]
        found = found[found["round"] == found["round"].max()]
    return found[found["round"].isin(read_rounds(run, found["round"], reading))]


def read_rounds(run: Run, rounds: pd.Series, reading: Reading) -> list[int]:
    """Returns the rounds, of those given, whose values a reading takes.

    Args:
        rounds: the rounds in which something was measured.
    """
    there = sorted(int(number) for number in rounds.unique())
    if reading.rule == "validated" and len(there) > 1:
        return [validated_round(run)]
    return there[-(reading.evaluations if reading.rule == "mean" else 1) :]


def validated_round(run: Run) -> int:
    """Returns the round in which the headline is best on the clients' validation data, the first of equals.

    The choice is made by the mean over all clients of the metric that the run is judged by, whatever metric or
    predictor is then read, so that all numbers of a run belong to one moment.

    Raises:
        UserError: the run has no scores on validation data.
    """
    points = curve(run, split="valid")
    if points.empty:  # a headline chosen from a family: the member chosen at the end has rows of its own
        points = curve(run, run.manifest.get("choices", {}).get(headline(run)), split="valid")
    if points.empty:
        raise UserError(
            f"{run.manifest['name']} has no scores on validation data to choose a round by; make it with "
            "--set score_valid=True, or read the last round"
        )
    better = higher_is_better(run, primary_metric(run))
    return int(points.idxmax() if better else points.idxmin())
