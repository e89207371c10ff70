"""What federation is worth to the clients of a comparison: every method beside training alone (Local)."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from idiolect.records import Run
from idiolect.reports.judged_metric import JudgedMetric, judged_by
from idiolect.reports.run_groups import group_runs
from idiolect.statistics import client_scores

__all__ = ["gains_over_local"]

FEW = 3  # so many clients that lose are named


def gains_over_local(runs: Iterable[Run]) -> list[str]:
    """Returns a sentence on what each method gains over Local on the clients' test rows; none without a run of Local.

    Only runs of one dataset, one partition and the same seeds are set beside each other.
    """
    groups = group_runs(runs)
    alone = [group for group in groups.values() if group[0].manifest["method"] == "local"]
    sentences = []
    for local in alone:
        compared = {
            label: _gains(group, local)
            for label, group in groups.items()
            if group is not local and _scene(group) == _scene(local)
        }
        if compared:
            sentences.append(_sentence(compared, local, judged_by(local)))
    return sentences


def _scene(group: list[Run]) -> tuple[str, str, int, tuple[int, ...]]:
    """Returns what two groups share whose clients hold the same rows."""
    first = group[0].manifest
    return (
        str(first.get("dataset")),
        str(first.get("partition")),
        len(first.get("class_counts", ())),
        tuple(int(run.manifest["seed"]) for run in group),
    )


def _gains(group: list[Run], local: list[Run]) -> pd.Series:
    """Returns the gain of each client, by name, as a mean over seeds; positive where the method serves it better."""
    sign = 1 if judged_by(local).higher_is_better else -1
    each = [
        sign * (client_scores(one) - client_scores(other)) for one, other in zip(group, local, strict=True)
    ]
    gains = pd.concat(each).groupby(level=0).mean().round(12)  # equal scores differ by rounding over seeds
    names = local[0].manifest.get("client_names") or []
    return gains.rename({number: names[number] for number in gains.index if number < len(names)})


def _sentence(compared: dict[str, pd.Series], local: list[Run], metric: JudgedMetric) -> str:
    parts = [_part(label, gains, metric) for label, gains in compared.items()]
    certainty = (
        "one seed tells what happened here, not what to expect"
        if len(local) == 1
        else f"means over {len(local)} seeds"
    )
    return f"gain over training alone (Local), mean over clients: {'; '.join(parts)} ({certainty})"


def _part(label: str, gains: pd.Series, metric: JudgedMetric) -> str:
    mean = f"{100 * gains.mean():+.1f} points" if metric.is_share else f"{gains.mean():+.3g} {metric.word}"
    better, worse = gains[gains > 0], gains[gains < 0]
    named = f" ({', '.join(map(str, worse.index))})" if 0 < len(worse) <= FEW else ""
    return f"{label} {mean}, better for {len(better)} of {len(gains)}, worse for {len(worse)}{named}"
