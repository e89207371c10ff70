"""Datasets by name or of the user's own: arrays, and a manifest of their origin."""

from idiolect.data.catalogue import (
    DEFAULT,
    DatasetDescription,
    describe,
    is_registered,
    load,
    names,
    register,
    resolved,
    sizes,
)
from idiolect.data.dataset import CLASS_TASKS, SPLITS, TASKS, Dataset, normalised
from idiolect.data.download import get
from idiolect.data.own.arrays import from_arrays, from_clients
from idiolect.data.own.data_check import ClientCheck, DataCheck, check_data
from idiolect.data.own.files import read_path
from idiolect.data.own.tables import encode_frame, from_frame
from idiolect.data.synthetic_clients import synthetic

__all__ = [
    "CLASS_TASKS",
    "DEFAULT",
    "SPLITS",
    "TASKS",
    "ClientCheck",
    "DataCheck",
    "Dataset",
    "DatasetDescription",
    "check_data",
    "describe",
    "encode_frame",
    "from_arrays",
    "from_clients",
    "from_frame",
    "get",
    "is_registered",
    "load",
    "names",
    "normalised",
    "read_path",
    "register",
    "resolved",
    "sizes",
    "synthetic",
]
