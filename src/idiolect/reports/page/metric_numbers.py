"""The numbers of one metric on the HTML page: leaderboard, curves, clients, spread, paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from idiolect import statistics
from idiolect.records import Run, scene_of
from idiolect.statistics import (
    Groups,
    client_labels,
    client_scores,
    curve,
    mean_over_seeds,
    over_replicates,
    replicate_of,
    run_numbers,
    server_curve,
    spread,
    worst_tenth,
)

__all__ = ["costs_part", "measured_part"]

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
        "leaderboard": leaderboard_part(groups, metric, curves),
        "curves": curves,
        "bytes": bytes_part(groups, curves),
        "clients": clients_part(groups, scores),
        "spread": spread_part(scores, higher),
        "pairs": pairs_part(groups, metric),
    }


def leaderboard_part(groups: Groups, metric: str, curves: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns by method `global`, `personal` and `worst`, as means over seeds with their SD (n - 1), and `sd_clients`.

    `low` and `high` are the 95 % interval of `personal`, which counts seeds and clients; see `statistics.Estimate`.
    """
    lines = []
    for runs, drawn in zip(groups.values(), curves, strict=True):
        shared, each = drawn["global"], [run_numbers(run, metric) for run in runs]
        personal = over_replicates(runs, [one.personal for one in each])
        worst = over_replicates(runs, [one.worst_tenth for one in each])
        interval = statistics.mean_estimate(runs, metric=metric)
        lines.append(
            {
                "global": shared["value"][-1] if shared["value"] else None,
                "global_sd": shared["sd"][-1] if shared["sd"] else None,
                "personal": personal.mean,
                "personal_sd": personal.sd,
                "low": interval.low,
                "high": interval.high,
                "sd_clients": over_replicates(runs, [one.sd_clients for one in each]).mean,
                "worst": worst.mean,
                "worst_sd": worst.sd,
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


def clients_part(groups: Groups, scores: ClientScores) -> dict[str, Any]:
    """Returns `clients` and `values[method][client]`, the mean over seeds; NaN where a seed lacks the client.

    Where seeds redraw the clients, those of every data seed are listed; see `statistics.mean_over_seeds`.
    """
    means = [mean_over_seeds(runs, found) for runs, found in zip(groups.values(), scores, strict=True)]
    if (
        len({series.index.nlevels for series in means}) > 1
    ):  # methods with one data seed beside others with several
        means = [_with_data_seed(series, runs) for series, runs in zip(means, groups.values(), strict=True)]
    table = pd.DataFrame(dict(enumerate(means))).sort_index()
    return {
        "clients": client_labels(table.index),
        "values": [table[place].tolist() for place in table],
    }


def _with_data_seed(series: pd.Series, runs: Sequence[Run]) -> pd.Series:
    if series.index.nlevels > 1:
        return series
    return pd.concat({replicate_of(runs[0]).data_seed: series}, names=["data_seed", "client"])


def spread_part(scores: ClientScores, higher: bool) -> list[dict[str, Any]]:
    """Returns by method the spread over clients within a seed, averaged over seeds; see `statistics.spread`."""
    lines = []
    for found in scores:
        line = pd.DataFrame([spread(values) for values in found]).mean(skipna=False)
        line["worst_tenth"] = _mean(worst_tenth(values, higher) for values in found)
        lines.append(line.to_dict())
    return lines


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


def pairs_part(groups: Groups, metric: str) -> list[list[Any]]:
    """Returns `[method, other, p]` for every pair of a scene that was tested, methods given by their places.

    p is that of `statistics.paired_comparisons`, corrected by Holm over the pairs of the scene.
    """
    place = {label: number for number, label in enumerate(groups)}
    scenes: dict[str, dict[str, Sequence[Run]]] = {}
    for label, runs in groups.items():
        scenes.setdefault(scene_of(runs[0].manifest), {})[label] = runs
    found = []
    for here in (here for here in scenes.values() if len(here) > 1):
        pairs = statistics.paired_comparisons(here, metric=metric).dropna(subset="p_holm")
        found += [
            [place[one], place[other], p] for one, other, p in pairs[["method", "other", "p_holm"]].values
        ]
    return found
