"""The numbers of one metric on the HTML page: leaderboard, curves, clients, spread, paired tests."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from idiolect import statistics
from idiolect.statistics import (
    Groups,
    Resampling,
    bootstrap_interval,
    client_scores,
    curve,
    server_curve,
    spread,
    worst_tenth,
)

__all__ = ["costs_part", "measured_part"]

RESAMPLES = 2000
ClientScores = list[list[pd.Series]]  # for each method and seed, the final value by client
MOST_POINTS = 250  # longer curves are thinned out to so many points


def measured_part(groups: Groups, metric: str, higher: bool) -> dict[str, Any]:
    """Returns all numbers of one metric; selects its rows first, which makes the rest fast."""
    groups = {
        label: [run._replace(rows=run.rows[run.rows["metric"] == metric]) for run in runs]
        for label, runs in groups.items()
    }
    scores = [[client_scores(run, metric=metric) for run in runs] for runs in groups.values()]
    curves = curves_part(groups, metric)
    return {
        "leaderboard": leaderboard_part(scores, curves, higher),
        "curves": curves,
        "bytes": bytes_part(groups, curves),
        "clients": clients_part(scores),
        "spread": spread_part(scores, higher),
        "pairs": pairs_part(groups, scores),
    }


def leaderboard_part(
    scores: ClientScores, curves: list[dict[str, Any]], higher: bool
) -> list[dict[str, Any]]:
    """Returns by method `global`, `personal` and `worst`, as means over seeds with their SD (n - 1), and `sd_clients`.

    `low` and `high` are the 95 % percentile interval of `personal` over clients.  `worst` is the mean of the worst
    tenth of the clients, the highest values of a metric that is better when low.
    """
    lines = []
    for found, drawn in zip(scores, curves, strict=True):
        shared = drawn["global"]
        personal = pd.Series([values.mean() for values in found], dtype=float)
        worst = pd.Series([worst_tenth(values, higher) for values in found], dtype=float)
        interval = bootstrap_interval(mean_over_seeds(found), Resampling(resamples=RESAMPLES))
        lines.append(
            {
                "global": shared["value"][-1] if shared["value"] else None,
                "global_sd": shared["sd"][-1] if shared["sd"] else None,
                "personal": personal.mean(skipna=False),
                "personal_sd": personal.std(ddof=1, skipna=False),
                "low": interval.low,
                "high": interval.high,
                "sd_clients": _mean(values.std(ddof=1) for values in found),
                "worst": worst.mean(skipna=False),
                "worst_sd": worst.std(ddof=1, skipna=False),
            }
        )
    return lines


def costs_part(groups: Groups) -> list[dict[str, Any]]:
    """Returns by method bytes `down` and `up` per round and `seconds` of the whole run, as means over seeds."""
    return [
        {
            "down": _mean(float(run.rounds["bytes_down"].mean()) for run in runs),
            "up": _mean(float(run.rounds["bytes_up"].mean()) for run in runs),
            "seconds": _mean(float(run.manifest.get("seconds", run.rounds["seconds"].sum())) for run in runs),
        }
        for runs in groups.values()
    ]


def clients_part(scores: ClientScores) -> dict[str, Any]:
    """Returns `clients` and `values[method][client]`, the mean over seeds; NaN where a seed lacks the client."""
    table = pd.DataFrame({place: mean_over_seeds(found) for place, found in enumerate(scores)}).sort_index()
    return {
        "clients": [int(client) for client in table.index],
        "values": [table[place].tolist() for place in table],
    }


def spread_part(scores: ClientScores, higher: bool) -> list[dict[str, Any]]:
    """Returns by method the spread over clients within a seed, averaged over seeds; see `statistics.spread`."""
    lines = []
    for found in scores:
        line = pd.DataFrame([spread(values) for values in found]).mean(skipna=False)
        line["worst_tenth"] = _mean(worst_tenth(values, higher) for values in found)
        lines.append(line.to_dict())
    return lines


def mean_over_seeds(found: list[pd.Series]) -> pd.Series:
    """Returns the mean over seeds by client, without clients that a seed lacks."""
    return pd.concat(found, axis=1).mean(axis=1, skipna=False).dropna()


def _mean(values: Any) -> float:
    return float(pd.Series(list(values), dtype=float).mean(skipna=False))


def curves_part(groups: Groups, metric: str) -> list[dict[str, Any]]:
    """Returns by method the curves `global`, `personal` and `end`, each with `round`, `value`, `sd` over seeds (n - 1).

    A round that not every seed measured is left out, so that a curve averages the same seeds throughout.
    """
    return [
        {
            "global": _over_seeds([server_curve(run, metric) for run in runs]),
            "personal": _over_seeds([curve(run, metric=metric) for run in runs]),
            "end": _over_seeds([curve(run, metric=metric, moment="end").tail(1) for run in runs]),
        }
        for runs in groups.values()
    ]


def bytes_part(groups: Groups, curves: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns by method the bytes up to each round of a curve, as means over seeds: `round`, `down`, `up`."""
    lines = []
    for runs, found in zip(groups.values(), curves, strict=True):
        rounds = sorted({number for part in found.values() for number in part["round"]})
        spent = [
            run.rounds.set_index("round")[["bytes_down", "bytes_up"]].sort_index().cumsum() for run in runs
        ]
        mean = sum(table.reindex(rounds, method="ffill").fillna(0) for table in spent) / len(spent)
        lines.append({"round": rounds, "down": mean["bytes_down"].tolist(), "up": mean["bytes_up"].tolist()})
    return lines


def _over_seeds(curves: list[pd.Series]) -> dict[str, list[Any]]:
    together = pd.concat(curves, axis=1).dropna()
    if len(together) > MOST_POINTS:
        together = together.iloc[np.unique(np.linspace(0, len(together) - 1, MOST_POINTS).astype(int))]
    return {
        "round": [int(number) for number in together.index],
        "value": together.mean(axis=1).tolist(),
        "sd": together.std(axis=1, ddof=1).tolist(),
    }


def pairs_part(groups: statistics.Groups, scores: ClientScores) -> list[list[Any]]:
    """Returns `[method, other, p]` for every pair with the same clients and seeds, methods given by their places.

    p is that of Wilcoxon's signed-rank test over clients, corrected by Holm.
    """
    seeds = [sorted(int(run.manifest["seed"]) for run in runs) for runs in groups.values()]
    clients = [[tuple(values.index) for values in found] for found in scores]
    means = [mean_over_seeds(found) for found in scores]
    pairs = [
        (one, other)
        for one, other in combinations(range(len(scores)), 2)
        if seeds[one] == seeds[other] and len(set(clients[one] + clients[other])) == 1 and len(means[one])
    ]
    tested = [statistics.signed_rank_test((means[one] - means[other]).to_numpy()) for one, other in pairs]
    return [[*pair, float(p)] for pair, p in zip(pairs, statistics.holm(tested), strict=True)]
