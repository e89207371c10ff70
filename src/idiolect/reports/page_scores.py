"""The final numbers on the page: the leaderboard, clients against methods, spread, aggregation."""

from __future__ import annotations

from typing import Any

import pandas as pd

from idiolect.statistics import Groups, bootstrap_interval, spread, worst_tenth

__all__ = ["Scores", "clients_part", "costs_part", "leaderboard_part", "mean_over_seeds", "spread_part"]

RESAMPLES = 2000

Scores = list[list[pd.Series]]  # by method and seed, the final value by client


def leaderboard_part(scores: Scores, curves: list[dict[str, Any]], higher: bool) -> list[dict[str, Any]]:
    """By method, each as the mean over seeds with its SD (n - 1): `global`, `personal`, `worst`; `sd_clients`.

    `low` and `high` are the 95 % percentile interval of `personal` over clients.  `worst` is the mean of the worst
    tenth of the clients, the highest values of a metric that is better when low.
    """
    lines = []
    for found, drawn in zip(scores, curves, strict=True):
        shared = drawn["global"]
        personal = pd.Series([values.mean() for values in found], dtype=float)
        worst = pd.Series([_worst(values, higher) for values in found], dtype=float)
        interval = bootstrap_interval(mean_over_seeds(found), resamples=RESAMPLES)
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
    """By method, means over seeds: bytes a round both ways, and seconds of the whole run."""
    return [
        {
            "down": _mean(float(run.rounds["bytes_down"].mean()) for run in runs),
            "up": _mean(float(run.rounds["bytes_up"].mean()) for run in runs),
            "seconds": _mean(float(run.manifest.get("seconds", run.rounds["seconds"].sum())) for run in runs),
        }
        for runs in groups.values()
    ]


def clients_part(scores: Scores) -> dict[str, Any]:
    """`clients` by number and `values[method][client]`, the mean over seeds; nothing where a seed lacks the client."""
    table = pd.DataFrame({place: mean_over_seeds(found) for place, found in enumerate(scores)}).sort_index()
    return {
        "clients": [int(client) for client in table.index],
        "values": [table[place].tolist() for place in table],
    }


def spread_part(scores: Scores, higher: bool) -> list[dict[str, Any]]:
    """By method, the spread over clients within a seed, averaged over seeds; see `spread`."""
    lines = []
    for found in scores:
        line = pd.DataFrame([spread(values) for values in found]).mean(skipna=False)
        line["worst_tenth"] = _mean(_worst(values, higher) for values in found)
        lines.append(line.to_dict())
    return lines


def _worst(values: pd.Series, higher: bool) -> float:
    return worst_tenth(values) if higher else -worst_tenth(-values)


def mean_over_seeds(found: list[pd.Series]) -> pd.Series:
    """By client, without those that a seed lacks."""
    return pd.concat(found, axis=1).mean(axis=1, skipna=False).dropna()


def _mean(values: Any) -> float:
    return float(pd.Series(list(values), dtype=float).mean(skipna=False))
