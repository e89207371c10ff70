"""The numbers of one metric in one scene on the HTML page: leaderboard, curves, clients, spread, paired comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from idiolect.records import Run
from idiolect.reports.judged_metric import JudgedMetric
from idiolect.reports.run_groups import comparable_seconds
from idiolect.reports.scene_verdict import SceneVerdict
from idiolect.reports.summary_table import idle_text
from idiolect.statistics import (
    Groups,
    Reading,
    client_labels,
    columns_over_replicates,
    curve,
    global_score,
    mean_over_seeds,
    never_trained,
    over_replicates,
    primary_metric,
    replicate_of,
    server_curve,
    spread,
    worst_tenth,
)
from idiolect.statistics.run_numbers import idle_clients

__all__ = ["costs_part", "measured_part", "rows_of"]

ClientScores = Sequence[Sequence[pd.Series]]  # for each method and seed, the final value by client
MOST_POINTS = 120  # longer curves are thinned out to so many points
MOST_POINTS_BESIDE = 40  # those of metrics that the runs are not judged by


def measured_part(groups: Groups, found: SceneVerdict, *, judges: bool) -> dict[str, Any]:
    """Returns all numbers of one metric.

    Args:
        groups: the methods with the rows of the metric; see `rows_of`.
        found: how the methods compare by it.
        judges: whether the runs are judged by it, for which curves are finer.
    """
    name = found.metric.name
    scores = [list(found.scores[label].values()) for label in groups]
    curves = curves_part(groups, name, MOST_POINTS if judges else MOST_POINTS_BESIDE)
    return {
        "leaderboard": leaderboard_part(groups, found),
        "curves": curves,
        "bytes": bytes_part(groups, curves),
        "clients": clients_part(groups, scores),
        "spread": spread_part(groups, scores, found.metric),
        "pairs": pairs_part(groups, found),
    }


def rows_of(run: Run, metric: str) -> Run:
    """Returns the run with the rows of one metric, and those of the one that a reading may choose a round by."""
    names = run.rows["metric"]
    return run._replace(rows=run.rows[(names == metric) | (names == primary_metric(run))])


def _global(run: Run, metric: str, reading: Reading) -> float:
    return global_score(run, metric, reading=reading) if _has(run, "split", "server") else math.nan


def _worst(run: Run, values: pd.Series, metric: JudgedMetric) -> float:
    return worst_tenth(values.drop(idle_clients(run), errors="ignore"), metric.higher_is_better)


def leaderboard_part(groups: Groups, verdict: SceneVerdict) -> list[dict[str, Any]]:
    """Returns by method `global`, `personal` and `worst`, as means over seeds with their SD (n - 1), and `sd_clients`.

    `low` and `high` are the 95 % interval of `personal`, which counts seeds and clients; methods that share one of
    `letters` do not differ significantly, and `text` has the numbers as tables write them.  `worst` is the mean of the
    worst tenth of the clients that trained, the highest values of a metric that is better when low.
    """
    estimates, metric = verdict.estimates.set_index("method"), verdict.metric
    lines = []
    for label, runs in groups.items():
        scores = list(verdict.scores[label].values())
        shared = over_replicates(runs, [_global(run, metric.name, verdict.reading) for run in runs])
        personal = over_replicates(runs, [float(values.mean()) for values in scores])
        worst = over_replicates(
            runs, [_worst(run, values, metric) for run, values in zip(runs, scores, strict=True)]
        )
        known = label in estimates.index
        line = {
            "global": shared.mean,
            "global_sd": shared.sd,
            "personal": personal.mean,
            "personal_sd": personal.sd,
            "low": estimates.loc[label, "low"] if known else math.nan,
            "high": estimates.loc[label, "high"] if known else math.nan,
            "sd_clients": over_replicates(runs, [float(values.std(ddof=1)) for values in scores]).mean,
            "worst": worst.mean,
            "worst_sd": worst.sd,
        }
        written = {key: metric.text(float(value)) for key, value in line.items()}
        lines.append({**line, "letters": verdict.letters.get(label, ""), "text": written})
    return lines


def costs_part(groups: Groups) -> list[dict[str, Any]]:
    """Returns by method bytes `down` and `up` per round and `seconds` of the whole run, as means over seeds.

    `never` is how many clients never trained, NaN where nobody counted; `never_text` is that as the tables write it;
    `left_out` counts those that the worst tenth leaves out.  Seconds are NaN unless all runs come from one machine.
    """
    timed = comparable_seconds(run for runs in groups.values() for run in runs)
    return [
        {
            "down": _mean(runs, lambda run: run.rounds["bytes_down"].mean()),
            "up": _mean(runs, lambda run: run.rounds["bytes_up"].mean()),
            "never": (never := _mean(runs, never_trained)),
            "left_out": (left_out := _mean(runs, lambda run: len(idle_clients(run)))),
            "never_text": idle_text(never, left_out),
            "seconds": _mean(runs, _seconds) if timed else math.nan,
        }
        for runs in groups.values()
    ]


def _seconds(run: Run) -> float:
    return float(run.manifest.get("seconds", run.rounds["seconds"].sum()))


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


def spread_part(groups: Groups, scores: ClientScores, metric: JudgedMetric) -> list[dict[str, Any]]:
    """Returns by method the spread over clients within a seed, averaged over seeds; see `statistics.spread`.

    `worst_tenth` is that of the leaderboard, over the clients that trained.
    """
    lines = []
    for runs, found in zip(groups.values(), scores, strict=True):
        each = [
            {**spread(values), "worst_tenth": _worst(run, values, metric)}
            for run, values in zip(runs, found, strict=True)
        ]
        lines.append({key: over_replicates(runs, [one[key] for one in each]).mean for key in each[0]})
    return lines


def _mean(runs: Sequence[Run], number: Callable[[Run], float]) -> float:
    return over_replicates(runs, [float(number(run)) for run in runs]).mean


def curves_part(groups: Groups, metric: str, points: int = MOST_POINTS) -> list[dict[str, Any]]:
    """Returns by method the curves `global`, `personal` and `end`, each with `round`, `value`, `sd` over seeds (n - 1).

    A round that not every seed measured is left out, so that a curve averages the same seeds throughout.

    Args:
        points: how many points of a curve are kept.
    """
    return [
        {
            "global": _over_seeds(
                [run for run in runs if _has(run, "split", "server")],
                lambda run: server_curve(run, metric),
                points,
            ),
            "personal": _over_seeds(runs, lambda run: curve(run, metric=metric), points),
            "end": _over_seeds(
                [run for run in runs if _has(run, "moment", "end")],
                lambda run: curve(run, metric=metric, moment="end").tail(1),
                points,
            ),
        }
        for runs in groups.values()
    ]


def bytes_part(groups: Groups, curves: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns by method the bytes up to each round of a curve, as means over seeds: `round`, `down`, `up`."""
    lines = []
    for runs, found in zip(groups.values(), curves, strict=True):
        rounds = sorted({number for part in found.values() for number in part["round"]})
        line: dict[str, Any] = {"round": rounds}
        for way in ("down", "up"):
            spent = [run.rounds.set_index("round")[f"bytes_{way}"].sort_index().cumsum() for run in runs]
            table = pd.concat([each.reindex(rounds, method="ffill").fillna(0) for each in spent], axis=1)
            line[way] = columns_over_replicates(runs, table)["mean"].tolist()
        lines.append(line)
    return lines


def _has(run: Run, column: str, word: str) -> bool:
    return bool((run.rows[column] == word).any())


def _over_seeds(
    runs: Sequence[Run], curve_of: Callable[[Run], pd.Series], points: int
) -> dict[str, list[Any]]:
    if not runs:
        return {"round": [], "value": [], "sd": []}
    together = pd.concat([curve_of(run) for run in runs], axis=1).dropna()
    if len(together) > points:
        together = together.iloc[np.unique(np.linspace(0, len(together) - 1, points).astype(int))]
    found = columns_over_replicates(runs, together)
    return {
        "round": [int(number) for number in together.index],
        "value": found["mean"].tolist(),
        "sd": found["sd"].tolist(),
    }


def pairs_part(groups: Groups, verdict: SceneVerdict) -> list[list[Any]]:
    """Returns `[method, other, difference, low, high, p, detectable]` of every pair, methods given by their places.

    p is corrected by Holm and NaN with fewer than three seeds; see `statistics.paired_comparisons`.
    """
    place = {label: number for number, label in enumerate(groups)}
    return [
        [
            place[line.method],
            place[line.other],
            line.difference,
            line.low,
            line.high,
            line.p_holm,
            line.detectable,
        ]
        for line in verdict.pairs.itertuples()
    ]
