"""What federation is worth to the clients of a comparison: every method beside training alone (Local)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from idiolect import statistics
from idiolect.records import Run
from idiolect.reports.judged_metric import JudgedMetric, judged_by
from idiolect.reports.run_groups import scenes_of
from idiolect.statistics import LAST, Reading, client_scores, mean_over_seeds, replicate_of, same_clients

if TYPE_CHECKING:
    from idiolect.statistics import Estimate

__all__ = ["gains_over_local"]

FEW = 3  # so many clients that lose are named


class Gains(NamedTuple):
    """What a method gains over Local.

    Args:
        runs: those of the method whose replicate Local has too.
        each: for each run the gain by client, positive where the method serves it better.
    """

    runs: list[Run]
    each: list[pd.Series]

    @property
    def estimate(self) -> Estimate:
        """The mean gain over clients and seeds, with its interval."""
        values = zip(self.runs, self.each, strict=True)
        return statistics.estimate({replicate_of(run): one.dropna() for run, one in values})


def gains_over_local(runs: Iterable[Run], reading: Reading = LAST) -> list[str]:
    """Returns a sentence on what each method gains over Local on the clients' test rows; none without a run of Local.

    Only runs of one scene with the same seeds are set beside each other.  A sentence names its scene where there are
    several, and the method with the largest gain first.
    """
    sentences, scenes = [], scenes_of(runs)
    for scene, groups in scenes.items():
        for local in (group for group in groups.values() if group[0].manifest["method"] == "local"):
            compared = {
                label: gains
                for label, group in groups.items()
                if group is not local and (gains := _gains(group, local, reading)).runs
            }
            if compared:
                where = f"{scene}: " if len(scenes) > 1 else ""
                sentences.append(where + _sentence(compared, judged_by(local)))
    return sentences


def _gains(group: Sequence[Run], local: Sequence[Run], reading: Reading) -> Gains:
    sign = 1 if judged_by(local).higher_is_better else -1
    alone = {replicate_of(run): run for run in local}
    paired = [run for run in group if replicate_of(run) in alone]
    each = [
        sign
        * (client_scores(run, reading=reading) - client_scores(alone[replicate_of(run)], reading=reading))
        for run in paired
    ]
    return Gains(paired, each)


def _sentence(compared: dict[str, Gains], metric: JudgedMetric) -> str:
    largest_first = sorted(compared.items(), key=lambda item: -item[1].estimate.value)
    parts = [_part(label, gains, metric) for label, gains in largest_first]
    seeds = max(len(gains.runs) for gains in compared.values())
    certainty = (
        "one seed tells what happened here, not what to expect" if seeds == 1 else f"means over {seeds} seeds"
    )
    return f"gain over training alone (Local), mean over clients: {'; '.join(parts)} ({certainty})"


def _part(label: str, gains: Gains, metric: JudgedMetric) -> str:
    """Returns mean, interval where there is one, and how many clients are better and worse off.

    Where the seed redraws the clients, those of every seed are counted, since none is in two of them.
    """
    found = gains.estimate
    interval = ""
    if not math.isnan(found.low):
        interval = f" (95 % interval {metric.signed(found.low)} to {metric.signed(found.high)})"
    unit = "points" if metric.is_share else metric.word
    clients = mean_over_seeds(gains.runs, gains.each).dropna().round(12)  # equal scores differ by rounding
    better, worse = clients[clients > 0], clients[clients < 0]
    persist = same_clients(gains.runs)
    named = f" ({', '.join(_names(worse, gains.runs[0]))})" if persist and 0 < len(worse) <= FEW else ""
    whom = f"{len(clients)}" if persist else f"{len(clients)} clients of {len(gains.runs)} seeds"
    return (
        f"{label} {metric.signed(found.value)} {unit}{interval}, better for {len(better)} of {whom}, "
        f"worse for {len(worse)}{named}"
    )


def _names(clients: pd.Series, run: Run) -> list[str]:
    names = run.manifest.get("client_names") or []
    return [str(names[number]) if number < len(names) else str(number) for number in clients.index]
