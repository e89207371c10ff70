"""Datasets by name: arrays, and a manifest of where they came from.  Knows nothing of clients."""

from idiolect.data.catalogue import DEFAULT, Row, describe, load, names, resolved, sizes
from idiolect.data.dataset import Dataset, normalised
from idiolect.data.download import get
from idiolect.data.synthetic import synthetic

__all__ = [
    "DEFAULT",
    "Dataset",
    "Row",
    "describe",
    "get",
    "load",
    "names",
    "normalised",
    "resolved",
    "sizes",
    "synthetic",
]
