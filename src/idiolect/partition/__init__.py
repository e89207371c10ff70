"""Partitions: pure functions from labels and a seed to each client's rows and the rows dropped."""

from idiolect.partition.allocation import allocate_rows
from idiolect.partition.by_id import by_id
from idiolect.partition.catalogue import (
    PartitionDescription,
    describe,
    names,
    own_sources,
    partition,
    register_partition,
    resolved,
)
from idiolect.partition.dirichlet_class import dirichlet_class
from idiolect.partition.dirichlet_client import dirichlet_client
from idiolect.partition.flower_partitioners import from_flower
from idiolect.partition.iid import iid
from idiolect.partition.label_k import label_k
from idiolect.partition.lognormal_2class import lognormal_2class
from idiolect.partition.map_incomplete import map_incomplete
from idiolect.partition.partition import Partition, RowNumbers
from idiolect.partition.pathological_shards import pathological_shards
from idiolect.partition.semantic_emnist import semantic_emnist
from idiolect.partition.semantic_tiny import semantic_tiny
from idiolect.partition.two_client_demo import two_client_demo

__all__ = [
    "Partition",
    "PartitionDescription",
    "RowNumbers",
    "allocate_rows",
    "by_id",
    "describe",
    "dirichlet_class",
    "dirichlet_client",
    "from_flower",
    "iid",
    "label_k",
    "lognormal_2class",
    "map_incomplete",
    "names",
    "own_sources",
    "partition",
    "pathological_shards",
    "register_partition",
    "resolved",
    "semantic_emnist",
    "semantic_tiny",
    "two_client_demo",
]
