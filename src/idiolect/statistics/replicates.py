"""Replicates of a method: which runs repeat it with another seed, and whether they redraw its data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from idiolect.records import Run, data_seed_of

__all__ = ["DESIGNS", "Replicate", "design_of", "replicate_of"]

DESIGNS = ("one", "redrawn", "fixed", "nested")


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
    drawn = [(one if isinstance(one, Replicate) else replicate_of(one)).data_seed for one in runs]
    if len(drawn) < 2:
        return "one"
    if len(set(drawn)) == len(drawn):
        return "redrawn"
    return "fixed" if len(set(drawn)) == 1 else "nested"
