"""How the methods of one scene compare: estimates, paired comparisons, and letters that same ones share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from idiolect import statistics
from idiolect.records import Run
from idiolect.reports.diverged_methods import divergence_text
from idiolect.reports.judged_metric import JudgedMetric, judged_by
from idiolect.reports.run_groups import scenes_of
from idiolect.statistics import LAST, Groups, Reading, client_scores, replicate_of

if TYPE_CHECKING:
    from idiolect.statistics.comparisons import Values

__all__ = ["LEVEL", "MOST_GROUPS", "SceneVerdict", "best_first", "scene_verdict"]

LEVEL = 0.05
MOST_GROUPS = 12  # that a column can show as letters


class SceneVerdict(NamedTuple):
    """How the methods of one scene compare.

    Args:
        scores: the final value by client of every method and replicate.
        estimates: the mean of every method with its interval, the best first; see `statistics.mean_estimates`.
        pairs: paired comparisons of all methods; see `statistics.paired_comparisons`.
        letters: methods that share a letter do not differ significantly; empty texts without a verdict.  Where there
            are too many groups, `best` marks those that do not differ from the best (see `statistics.letters`).
        first: one run of the scene, whose manifest describes it.
    """

    metric: JudgedMetric
    reading: Reading
    scores: Mapping[str, Values]
    estimates: pd.DataFrame
    pairs: pd.DataFrame
    letters: dict[str, str]
    first: Run

    @property
    def leader(self) -> str:
        return str(self.estimates["method"].iloc[0])

    @property
    def decided(self) -> bool:
        """Whether any two methods could be tested."""
        return bool(self.pairs["p_holm"].notna().any())

    def against_leader(self) -> pd.DataFrame:
        """Returns the comparisons of the leader with the others: `other`, `lead` (positive), `p_holm`, `detectable`."""
        found, sign = self.pairs, 1 if self.metric.higher_is_better else -1
        forward, backward = found[found["method"] == self.leader], found[found["other"] == self.leader]
        swapped = backward.assign(other=backward["method"], difference=-backward["difference"])
        both = pd.concat([forward, swapped])
        order = {name: place for place, name in enumerate(self.estimates["method"])}
        both = both.assign(lead=sign * both["difference"])
        return both.sort_values("other", key=lambda names: names.map(order))


def scene_verdict(
    groups: Groups, reading: Reading = LAST, metric: JudgedMetric | None = None, *, paired: bool = True
) -> SceneVerdict:
    """Returns estimates, paired comparisons and letters of the methods of one scene.

    Args:
        metric: what is compared; without it what the runs are judged by.
        paired: whether to compare every two methods, which takes time where there are many.
    """
    metric = metric or judged_by(run for runs in groups.values() for run in runs)
    scores = {
        label: {replicate_of(run): client_scores(run, metric=metric.name, reading=reading) for run in runs}
        for label, runs in groups.items()
    }
    first = next(iter(groups.values()))[0]
    bounds = statistics.metric_bounds(first, metric.name)
    found = {label: statistics.estimate(values).within(*bounds) for label, values in scores.items()}
    estimates = pd.DataFrame({"method": label, **one._asdict()} for label, one in found.items())
    estimates = estimates.dropna(subset="value")
    estimates = estimates.sort_values("value", ascending=not metric.higher_is_better, kind="stable")
    order = list(estimates["method"])
    pairs = statistics.compare_scores({label: scores[label] for label in (order if paired else [])})
    letters = statistics.letters(order, pairs, LEVEL, most=MOST_GROUPS)
    return SceneVerdict(metric, reading, scores, estimates.reset_index(drop=True), pairs, letters, first)


def best_first(runs: Iterable[Run], reading: Reading = LAST) -> list[Run]:
    """Returns runs scene by scene, the best method of a scene first, so that everything made of them has that order.

    Methods without a value, such as those that diverged, come last.
    """
    found = []
    for groups in scenes_of(runs).values():
        ended = {label: group for label, group in groups.items() if not divergence_text(group)}
        order = scene_verdict(ended, reading, paired=False).estimates["method"] if ended else []
        found += [run for label in dict.fromkeys([*order, *groups]) for run in groups[label]]
    return found
