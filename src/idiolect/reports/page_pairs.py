"""Which two methods are told apart: paired tests of every two that have the same clients and seeds."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from idiolect import statistics
from idiolect.reports.page_scores import Scores, mean_over_seeds

__all__ = ["pairs_part"]


def pairs_part(groups: statistics.Groups, scores: Scores) -> list[list[Any]]:
    """Lines `[method, other, p]`, by their places: Wilcoxon's signed-rank test over clients, corrected by Holm."""
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
