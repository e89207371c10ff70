"""Availability of a dataset on this machine, and how to get it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from idiolect.data.catalogue import describe, names
from idiolect.data.location import data_folder, fetch_again
from idiolect.data.sources import SOURCES
from idiolect.errors import unknown_name

__all__ = ["Availability", "availability"]


class Availability(NamedTuple):
    """Whether a dataset is on this machine.

    Args:
        dataset: the dataset's name, without options.
        where: the place that was looked at.
        advice: how to get the dataset; empty where it is present.
    """

    dataset: str
    present: bool
    where: str
    advice: str


def availability(dataset: str, data_dir: str | Path | None = None) -> Availability:
    """Returns whether a dataset, named with or without options, is on this machine.

    >>> availability("fashion-mnist-12k").present
    True
    """
    name = dataset.partition("(")[0].strip()
    row = next((row for row in describe(data_dir) if row.name == name), None)
    if row is None:
        raise unknown_name("dataset", name, names())
    present = row.status == "present"
    advice = "" if present else fetch_again(SOURCES[name], data_folder(data_dir))
    return Availability(name, present, row.where, advice)
