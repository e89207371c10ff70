"""What a report found and how sure it is, in words made from its numbers.

A verdict needs three independent units, seeds or partitions: with fewer the paragraph says so, and what difference
could have been found at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from idiolect.reports.judged_metric import JudgedMetric
from idiolect.reports.scene_matrix import SceneMatrix, scene_matrix
from idiolect.reports.scene_verdict import LEVEL, SceneVerdict
from idiolect.statistics import FEWEST_UNITS, Groups, design_of

__all__ = ["findings_of", "overall_findings", "scene_findings"]

MOST_NAMES = 4


def findings_of(scenes: Mapping[str, Groups], verdicts: Mapping[str, SceneVerdict]) -> list[str]:
    """Returns what a report found, a paragraph for all scenes together where there are several, and one for each."""
    if len(scenes) == 1:
        return [" ".join(scene_findings(verdicts[name], groups)) for name, groups in scenes.items()]
    whole = " ".join(overall_findings(verdicts, scene_matrix(verdicts)))
    each = [f"{name}: {' '.join(scene_findings(verdicts[name], groups))}" for name, groups in scenes.items()]
    return [whole, *each]


def scene_findings(found: SceneVerdict, groups: Groups) -> list[str]:
    """Returns sentences about one scene: the leader, who is as good, who is worse, and how sure that is."""
    if found.estimates.empty:
        return ["No client was measured."]
    best = found.estimates.iloc[0]
    value = _value(found.metric, best["value"])
    if len(found.estimates) == 1:
        return [f"{found.leader} has a mean {found.metric.word} of {value}{_interval(found, best)}."]
    if not found.decided:
        return _undecided(found, groups, value)
    others = found.against_leader()
    if not others["lead"].any():
        return [f"All methods have the same mean {found.metric.word}, {value}."]
    tested = others[others["p_holm"].notna()]
    if tested.empty:
        return [
            f"{found.leader} has the best mean {found.metric.word}, {value}{_interval(found, best)}, but too few seeds "
            "in common with every other method for a verdict on its lead; the groups compare the others."
        ]
    worse = tested[(tested["p_holm"] < LEVEL) & (tested["lead"] > 0)]
    better = tested[(tested["p_holm"] < LEVEL) & (tested["lead"] < 0)]
    equal = tested[tested["p_holm"] >= LEVEL]
    sentences = [f"{found.leader} leads with {value} {found.metric.word}{_interval(found, best)}."]
    if len(better):
        sentences = [_misleading(found, better, value + _interval(found, best))]
    if len(equal):
        sentences.append(f"It cannot be told apart from {_listed(equal['other'])}.")
    elif len(worse) == len(found.estimates) - 1:
        sentences.append("It is better than every other method.")
    if len(worse):
        leads = [f"{line.other} (by {_points(found.metric, line.lead)})" for line in worse.itertuples()]
        sentences.append(f"Clearly worse: {_listed(leads)}.")
    unpaired = set(found.estimates["method"]) - {found.leader} - set(tested["other"])
    if unpaired:
        sentences.append(f"Not compared for want of common seeds: {_listed(sorted(unpaired))}.")
    return [*sentences, _certainty(found, tested["other"])]


def _misleading(found: SceneVerdict, better: pd.DataFrame, value: str) -> str:
    """Returns that the best mean owes its place to seeds which better methods were not run with."""
    leads = [f"{line.other} (by {_points(found.metric, -line.lead)})" for line in better.itertuples()]
    return (
        f"{found.leader} has the best mean {found.metric.word}, {value}, but on the seeds in common {_listed(leads)} "
        f"{'is' if len(leads) == 1 else 'are'} better: the means are of different seeds."
    )


def _undecided(found: SceneVerdict, groups: Groups, value: str) -> list[str]:
    """Returns what can be said without a test: the order of the means, and what a verdict would need."""
    others = found.against_leader()
    repeated, needed = _repeated_and_needed(found, groups)
    sentences = [f"{repeated}: no verdict."]
    if len(others):
        second = others.iloc[0]
        sentences.append(
            f"{found.leader} has the best mean {found.metric.word}, {value}, before {second['other']} by "
            f"{_points(found.metric, second['lead'])}; another seed may turn that round."
        )
        reach = others["detectable"].median()
        if pd.notna(reach):
            bound = "Even if seeds did not vary, a" if (found.pairs["design"] == "one").all() else "A"
            sentences.append(
                f"{bound} difference below about {_points(found.metric, reach)} would be missed more often than one "
                "time in five."
            )
    else:
        sentences.append(f"{found.leader} has the best mean {found.metric.word}, {value}.")
    return [*sentences, f"A verdict needs {FEWEST_UNITS} {needed}."]


def _repeated_and_needed(found: SceneVerdict, groups: Groups) -> tuple[str, str]:
    """Returns what the methods have in common that repeats them, and what a verdict needs three of."""
    pairs, most = found.pairs, max(len(runs) for runs in groups.values())
    if pairs.empty:
        return "No two methods have seeds and clients in common", "seeds or more that the methods share"
    if (pairs["design"] == "nested").any():
        both = [found.scores[one].keys() & found.scores[other].keys() for one, other in _names(pairs)]
        drawn = max(len({replicate.data_seed for replicate in common}) for common in both)
        return f"Runs on {drawn} partitions", "partitions or more (--data-seed), which are the units here"
    common = int(pairs["seeds"].max())
    if common < most:
        shared = "One seed" if common == 1 else f"{common} seeds"
        return f"{shared} in common", "seeds or more that the methods share"
    return "One run each" if most == 1 else f"{most} seeds each", f"seeds or more (--seeds {FEWEST_UNITS})"


def _names(pairs: pd.DataFrame) -> Iterable[tuple[str, str]]:
    return zip(pairs["method"], pairs["other"], strict=True)


def _certainty(found: SceneVerdict, others: Iterable[str]) -> str:
    """Returns on what the tests of the leader against `others` stand."""
    leader = found.scores[found.leader]
    common = [sorted(leader.keys() & found.scores[other].keys()) for other in others]
    counts = _range(map(len, common))
    drawn = _range(len({replicate.data_seed for replicate in both}) for both in common)
    designs = {design_of(both) for both in common}
    words = {
        "redrawn": f"{counts} seeds, each with a partition of its own",
        "fixed": f"{counts} seeds on one partition",
        "nested": f"{counts} runs on {drawn} partitions",
    }
    repeated = words[designs.pop()] if len(designs) == 1 else f"{counts} runs"
    return f"Tested at {100 * LEVEL:g} % after Holm's correction, paired over {repeated}."


def _range(counts: Iterable[int]) -> str:
    """Returns numbers as one or as their ends.

    >>> _range([3, 3]), _range([5, 3])
    ('3', '3 to 5')
    """
    ends = sorted(set(counts))
    return f"{ends[0]} to {ends[-1]}" if len(ends) > 1 else str(ends[0])


def overall_findings(verdicts: Mapping[str, SceneVerdict], matrix: SceneMatrix) -> list[str]:
    """Returns sentences about several scenes together: whether one method leads in all of them."""
    leaders: dict[str, list[str]] = {}
    for scene, found in verdicts.items():
        if len(found.estimates):
            leaders.setdefault(found.leader, []).append(scene)
    if not leaders:
        return []
    count = sum(map(len, leaders.values()))
    first, led = max(leaders.items(), key=lambda item: len(item[1]))
    if len(leaders) == 1:
        scenes = "both scenes" if count == 2 else f"all {count} scenes"
        sentences = [f"{first} has the best mean in {scenes}."]
    else:
        rest = [f"{leader} in {_quoted(scenes)}" for leader, scenes in leaders.items() if leader != first]
        sentences = [
            f"No method has the best mean in every scene: {first} has it in {len(led)} of {count} ({_quoted(led)}), "
            f"{_listed(rest)}."
        ]
    undecided = [scene for scene, found in verdicts.items() if not found.decided]
    if undecided:
        where = "any scene" if len(undecided) == len(verdicts) else _quoted(undecided)
        sentences.append(f"There is no verdict in {where}.")
    else:
        top = [set(_top(found)) for found in verdicts.values()]
        always = [
            label
            for label in verdicts[next(iter(verdicts))].estimates["method"]
            if all(label in t for t in top)
        ]
        if always:
            whom = always[0] if len(always) == 1 else f"each of {_listed(always)}"
            sentences.append(
                f"In every scene {whom} has the best mean or cannot be told apart from the method that has it."
            )
        else:
            sentences.append("No method is among the best in every scene.")
    if matrix.ranking is not None:
        ranking = matrix.ranking
        verdict = "differ" if ranking.p_value < ranking.level else "are not told apart"
        sentences.append(
            f"By mean rank {ranking.ranks.index[0]} comes first ({ranking.ranks.iloc[0]:.2f} of {len(ranking.ranks)}); "
            f"over {ranking.scenarios} scenes the methods {verdict} (Friedman, p = {ranking.p_value:.2g})."
        )
    return sentences


def _top(found: SceneVerdict) -> list[str]:
    others = found.against_leader()
    return [found.leader, *others["other"][~((others["p_holm"] < LEVEL) & (others["lead"] > 0))]]


def _interval(found: SceneVerdict, line: pd.Series) -> str:
    if pd.isna(line["low"]):
        return ""
    return f" (95 % interval {found.metric.text(line['low'])} to {found.metric.text(line['high'])})"


def _value(metric: JudgedMetric, value: float) -> str:
    return metric.text(value) + (" %" if metric.is_share else "")


def _points(metric: JudgedMetric, value: float) -> str:
    return f"{metric.text(value)} points" if metric.is_share else metric.text(value)


def _quoted(scenes: Iterable[str]) -> str:
    return _listed(f'"{scene}"' for scene in scenes)


def _listed(names: Iterable[str]) -> str:
    """Returns names as a list in a sentence, the first few where there are many.

    >>> _listed("ab"), _listed("abcdefg")
    ('a and b', 'a, b, c, d and 3 others')
    """
    every = list(names)
    if len(every) > MOST_NAMES + 1:
        every = [*every[:MOST_NAMES], f"{len(every) - MOST_NAMES} others"]
    return " and ".join(filter(None, [", ".join(every[:-1]), every[-1]])) if every else ""
