"""Replicates of a method: which runs repeat it with another seed, and whether they redraw its data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd

from idiolect.records import Run, data_seed_of

__all__ = [
    "DESIGNS",
    "FEWEST_UNITS",
    "OverReplicates",
    "Replicate",
    "columns_over_replicates",
    "design_of",
    "over_replicates",
    "replicate_of",
]

DESIGNS = ("one", "redrawn", "fixed", "nested")
FEWEST_UNITS = 3  # a variance of two numbers says next to nothing, and a verdict needs it


class Replicate(NamedTuple):
    """What tells the runs of one method apart: the seed of partition and split, and the seed of the training."""

    data_seed: int
    seed: int


def replicate_of(run: Run) -> Replicate:
    """Returns the replicate of a run."""
    return Replicate(data_seed_of(run.manifest), int(run.manifest["seed"]))


def design_of(runs: Iterable[Run | Replicate]) -> str:
    """Returns how the data of several replicates were drawn: `one`, `redrawn`, `fixed` or `nested`.

    `one` is a single run; `redrawn` has another partition in every run; `fixed` has one partition and several seeds;
    `nested` has several partitions, some of them with several seeds.

    >>> design_of([Replicate(0, 0)]), design_of([Replicate(0, 0), Replicate(1, 1)])
    ('one', 'redrawn')
    >>> design_of([Replicate(7, 0), Replicate(7, 1)]), design_of([Replicate(7, 0), Replicate(7, 1), Replicate(8, 0)])
    ('fixed', 'nested')
    """
    drawn = _data_seeds(runs)
    if len(drawn) < 2:
        return "one"
    if len(set(drawn)) == len(drawn):
        return "redrawn"
    return "fixed" if len(set(drawn)) == 1 else "nested"


class OverReplicates(NamedTuple):
    """The mean of a number over the runs of a method, and its SD over the independent ones (n - 1)."""

    mean: float
    sd: float


def over_replicates(runs: Sequence[Run | Replicate], values: Sequence[float]) -> OverReplicates:
    """Returns mean and SD of a number that each run gives; NaN where a run has none.

    Seeds that are nested in partitions are averaged within each partition first, and the SD is that of the partitions.

    >>> over_replicates([Replicate(7, 0), Replicate(7, 1), Replicate(8, 0)], [0.1, 0.3, 0.6]).mean
    0.4
    """
    numbers = pd.Series(list(values), dtype=float)
    if design_of(runs) == "nested":
        numbers = numbers.groupby(_data_seeds(runs)).agg(lambda found: found.mean(skipna=False))
    return OverReplicates(float(numbers.mean(skipna=False)), float(numbers.std(ddof=1, skipna=False)))


def columns_over_replicates(runs: Sequence[Run | Replicate], columns: pd.DataFrame) -> pd.DataFrame:
    """Returns `mean` and `sd` of each row of a table with a column per run, as `over_replicates` does for a number.

    >>> curves = pd.DataFrame([[0.1, 0.3, 0.6]])
    >>> columns_over_replicates([Replicate(7, 0), Replicate(7, 1), Replicate(8, 0)], curves)["mean"].tolist()
    [0.4]
    """
    units = columns.T.reset_index(drop=True)
    if design_of(runs) == "nested":
        units = units.groupby(_data_seeds(runs)).mean()
    return pd.DataFrame({"mean": units.mean(), "sd": units.std(ddof=1)})


def _data_seeds(runs: Iterable[Run | Replicate]) -> list[int]:
    return [(one if isinstance(one, Replicate) else replicate_of(one)).data_seed for one in runs]
