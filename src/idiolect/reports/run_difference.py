"""``diff``: in what two runs, or two folders of runs, differ: settings, data, code, machine, and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from idiolect.records import FoundRun, Run, data_seed_of, find_runs, read_run, scene_of
from idiolect.reports.run_groups import flat
from idiolect.statistics import headline, primary_metric
from idiolect.statistics.tidy_frame import SERIES, is_final

__all__ = ["Difference", "FinalNumber", "FirstDifference", "PairOfRuns", "diff"]

KEYS = ["round", "client", "split", "predictor", "moment", "population", "metric"]
# What a manifest says besides numbers, by what a reader would call it.
FACTS = {
    "settings": ("spec", "options", "precision"),
    "data": ("source", "class_counts", "samples", "client_names", "newcomers", "dropped", "preprocessing"),
    "code": ("architecture", "model_file", "code", "commit", "parameters"),
    "versions": ("versions",),
    "machine": ("hardware", "engine"),
}
MOST_LETTERS = 60
MOST_LINES = 12


@dataclass(frozen=True)
class FinalNumber:
    """A final number, the mean over clients, of both sides; None where a side has none."""

    predictor: str
    split: str
    population: str
    metric: str
    a: float | None
    b: float | None

    @property
    def difference(self) -> float | None:
        """The second number less the first."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True)
class FirstDifference:
    """The first measurement, in the order of rounds, in which two runs part."""

    round: int
    client: int | None
    metric: str
    predictor: str
    a: float | None
    b: float | None

    def __str__(self) -> str:
        who = "" if self.client is None else f", client {self.client}"
        what = f"{self.predictor} {self.metric}".strip()
        return f"round {self.round}{who}, {what}: {_written(self.a)} and {_written(self.b)}"


@dataclass(frozen=True)
class PairOfRuns:
    """Two runs that belong together.

    Args:
        facts: by topic (settings, data, code, versions, machine) and name, the two values that differ.
        numbers: all final numbers of either side.
        first: where the runs part; None where every number is equal, bit for bit.
        headline: the predictor and the metric that represent the first run.
    """

    a: str
    b: str
    label: str
    method: str
    scene: str
    seed: int
    data_seed: int
    facts: Mapping[str, Mapping[str, tuple[Any, Any]]]
    numbers: tuple[FinalNumber, ...]
    first: FirstDifference | None
    headline: tuple[str, str]

    @property
    def same(self) -> bool:
        """Whether every measurement of the two runs is equal, bit for bit."""
        return self.first is None


@dataclass(frozen=True, repr=False)
class Difference:
    """What ``diff`` found.

    Args:
        pairs: runs that both sides have.
        only_a: names of runs that only the first side has.
        only_b: names of runs that only the second side has.
    """

    a: str
    b: str
    pairs: tuple[PairOfRuns, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether both sides have the same runs with the same numbers, bit for bit."""
        return not self.only_a and not self.only_b and all(pair.same for pair in self.pairs)

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        equal = sum(pair.same for pair in self.pairs)
        what = f"{len(self.pairs)} runs in both, {equal} of them with the same numbers bit for bit"
        if len(self.pairs) == 1:
            what = f"the numbers are {'equal bit for bit' if equal else 'different'}"
        yield f"{self.a} and {self.b}: {what}"
        yield from (f"only in {side}: {name}" for side, name in self._unpaired())
        parted = [pair for pair in self.pairs if not pair.same]
        for pair in parted[:MOST_LINES]:
            yield f"{pair.label}, seed {pair.seed}: they part in {pair.first}"
        if len(parted) > MOST_LINES:
            yield f"and {len(parted) - MOST_LINES} more"
        yield from (f"{topic}: {text}" for topic, text in self.differing_facts())

    def _unpaired(self) -> Iterator[tuple[str, str]]:
        yield from ((self.a, name) for name in self.only_a)
        yield from ((self.b, name) for name in self.only_b)

    def differing_facts(self) -> list[tuple[str, str]]:
        """Returns topic and text of every fact in which paired runs differ, and how many runs it concerns."""
        counts: dict[tuple[str, str], int] = {}
        for pair in self.pairs:
            for topic, found in pair.facts.items():
                for name, values in found.items():
                    text = _told(name, *values)
                    counts[topic, text] = counts.get((topic, text), 0) + 1
        several = len(self.pairs) > 1
        return [
            (topic, f"{text} ({count} of {len(self.pairs)} runs)" if several else text)
            for (topic, text), count in counts.items()
        ]


def diff(a: str | Path, b: str | Path) -> Difference:
    """Compares two runs, or all runs of two folders, which are paired by scene, method and seeds.

    Args:
        a: a run, or a folder that holds runs at any depth.
        b: the other one.

    Raises:
        UserError: one of them holds no finished run; damaged ones are left out with a warning.

    >>> import tempfile, idiolect
    >>> with tempfile.TemporaryDirectory() as out:
    ...     done = idiolect.run("fedper", rounds=1, clients=4, partition="iid", out=out, engine="loop", quiet=True)
    ...     found = idiolect.diff(done.folder, out)
    >>> found.same, len(found.pairs), found.only_a
    (True, 1, ())
    """
    first, second = find_runs(a), find_runs(b)
    pairs = [(first[0], second[0])] if len(first) == len(second) == 1 else _paired(first, second)
    paired = [id(run) for pair in pairs for run in pair]
    return Difference(
        str(a),
        str(b),
        tuple(_compared(read_run(one.folder), read_run(other.folder)) for one, other in pairs),
        tuple(run.manifest["name"] for run in first if id(run) not in paired),
        tuple(run.manifest["name"] for run in second if id(run) not in paired),
    )


def _paired(first: Sequence[FoundRun], second: Sequence[FoundRun]) -> list[tuple[FoundRun, FoundRun]]:
    """Pairs runs of the same settings, then those of one scene, method and seeds, where each side has one."""
    left, right = list(first), list(second)
    found: list[tuple[FoundRun, FoundRun]] = []
    for key in (_same_settings, _same_place):
        for name in dict.fromkeys(map(key, left)):
            ours, theirs = ([run for run in side if key(run) == name] for side in (left, right))
            if len(ours) == len(theirs) == 1:
                found += [(ours[0], theirs[0])]
                left.remove(ours[0])
                right.remove(theirs[0])
    order = {id(run): place for place, run in enumerate(first)}
    return sorted(found, key=lambda pair: order[id(pair[0])])


def _same_settings(run: FoundRun) -> tuple[Any, ...]:
    manifest = run.manifest
    known = manifest.get("family_hash") or manifest.get("spec_hash") or manifest["name"]
    return known, data_seed_of(manifest), manifest["seed"]


def _same_place(run: FoundRun) -> tuple[Any, ...]:
    manifest = run.manifest
    return scene_of(manifest), manifest["method"], data_seed_of(manifest), manifest["seed"]


def _compared(a: Run, b: Run) -> PairOfRuns:
    manifest = a.manifest
    return PairOfRuns(
        a=str(manifest["name"]),
        b=str(b.manifest["name"]),
        label=str(manifest.get("label") or manifest["method"]),
        method=str(manifest["method"]),
        scene=scene_of(manifest),
        seed=int(manifest["seed"]),
        data_seed=data_seed_of(manifest),
        facts=_differing(manifest, b.manifest),
        numbers=tuple(_final_numbers(a, b)),
        first=_first_difference(a, b),
        headline=(headline(a), primary_metric(a)),
    )


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, dict[str, tuple[Any, Any]]]:
    found: dict[str, dict[str, tuple[Any, Any]]] = {}
    for topic, keys in FACTS.items():
        ours, theirs = (_named({key: side[key] for key in keys if key in side}) for side in (a, b))
        names = dict.fromkeys((*ours, *theirs))
        both = {name: (ours.get(name), theirs.get(name)) for name in names}
        if differing := {name: values for name, values in both.items() if values[0] != values[1]}:
            found[topic] = differing
    return found


def _named(facts: dict[str, Any]) -> dict[str, Any]:
    """Returns the facts under dotted names; settings and options of methods need no word in front."""
    plain = {**facts.pop("spec", {}), **dict(facts.pop("options", []))}
    return flat(plain | facts)


def _final_numbers(a: Run, b: Run) -> Iterator[FinalNumber]:
    ours, theirs = _final_means(a), _final_means(b)
    for key in dict.fromkeys((*ours, *theirs)):
        split, population, predictor, metric = key
        yield FinalNumber(predictor, split, population, metric, ours.get(key), theirs.get(key))


def _final_means(run: Run) -> dict[tuple[str, ...], float]:
    rows = run.rows[run.rows["population"] != "selected"]
    final = rows[is_final(rows)] if len(rows) else rows
    return {key: float(mean) for key, mean in final.groupby(SERIES, sort=False)["value"].mean().items()}


def _first_difference(a: Run, b: Run) -> FirstDifference | None:
    """Returns the first number that differs or that only one side has; how long rounds took does not count."""
    ours, theirs = _all_numbers(a), _all_numbers(b)
    if len(ours) == len(theirs) and ours.equals(theirs):
        return None
    ours, theirs = (side.assign(place=range(len(side))) for side in (ours, theirs))
    both = ours.merge(theirs, on=KEYS, how="outer", suffixes=("_a", "_b"), indicator=True)
    both["place"] = both["place_a"].fillna(both["place_b"])  # as they were measured
    equal = (both["value_a"] == both["value_b"]) | (both["value_a"].isna() & both["value_b"].isna())
    parted = both[~equal | (both["_merge"] != "both")].sort_values(["round", "place"], kind="stable")
    if parted.empty:  # the same numbers in another order
        return None
    one = parted.iloc[0]
    client = int(one["client"])
    return FirstDifference(
        int(one["round"]),
        client if client >= 0 else None,
        str(one["metric"]),
        str(one["predictor"]),
        *(None if pd.isna(one[name]) else float(one[name]) for name in ("value_a", "value_b")),
    )


def _all_numbers(run: Run) -> pd.DataFrame:
    """Returns one row per number of a run: the costs of its rounds, without the time, and its measurements."""
    kept = [name for name in run.rounds.columns if name in ("cohort", "bytes_down", "bytes_up", "train_loss")]
    costs = run.rounds.melt("round", kept, "metric", "value")
    costs = costs.assign(client=-1, split="", predictor="", moment="", population="")
    both = pd.concat([costs[[*KEYS, "value"]], run.rows[[*KEYS, "value"]]], ignore_index=True)
    return both.astype({name: "str" for name in KEYS if name not in ("round", "client")})


def _written(value: float | None) -> str:
    return "nothing" if value is None else repr(value)


def _told(name: str, *values: Any) -> str:
    """Returns a fact with its two values, or by name alone where they are long."""
    texts = ["nothing" if value is None else str(value) for value in values]
    return f"{name} {' and '.join(texts)}" if max(map(len, texts)) <= MOST_LETTERS else f"{name} differ"
