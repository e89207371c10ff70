"""Datasets by name: arrays, and a manifest of their origin.  Knows nothing of clients."""

from idiolect.data.catalogue import DEFAULT, DatasetDescription, describe, load, names, resolved, sizes
from idiolect.data.dataset import CLASS_TASKS, SPLITS, TASKS, Dataset, normalised
from idiolect.data.download import get
from idiolect.data.synthetic_clients import synthetic

__all__ = [
    "CLASS_TASKS",
    "DEFAULT",
    "SPLITS",
    "TASKS",
    "Dataset",
    "DatasetDescription",
    "describe",
    "get",
    "load",
    "names",
    "normalised",
    "resolved",
    "sizes",
    "synthetic",
]
