"""The catalogue of partitions by name, as they are written in a configuration or on the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from idiolect.errors import unknown_name
from idiolect.option_parsing import OptionSchema, parse_call
from idiolect.partition.by_id import by_id
from idiolect.partition.dirichlet_class import dirichlet_class
from idiolect.partition.dirichlet_client import dirichlet_client
from idiolect.partition.iid import iid
from idiolect.partition.label_k import label_k
from idiolect.partition.lognormal_2class import lognormal_2class
from idiolect.partition.map_incomplete import map_incomplete
from idiolect.partition.partition import Partition
from idiolect.partition.pathological_shards import pathological_shards
from idiolect.partition.semantic_emnist import semantic_emnist
from idiolect.partition.semantic_tiny import semantic_tiny
from idiolect.partition.two_client_demo import two_client_demo

__all__ = ["PartitionDescription", "describe", "names", "partition", "resolved"]

PARTITIONS: dict[str, Callable[..., Partition]] = {
    function.__name__: function
    for function in (
        iid,
        label_k,
        map_incomplete,
        dirichlet_client,
        dirichlet_class,
        lognormal_2class,
        pathological_shards,
        semantic_emnist,
        semantic_tiny,
        two_client_demo,
        by_id,
    )
}
ALIASES = {"natural": "by_id"}  # the papers' word for it


class PartitionDescription(NamedTuple):
    """A partition's name, its idea in one line, and its options with their defaults."""

    name: str
    idea: str
    options: dict[str, Any]


def partition(
    spec: str, labels: ArrayLike, n_clients: int, seed: int, ids: ArrayLike | None = None
) -> Partition:
    """Partitions labels as a call says, for example "label_k(k=2)" or "dirichlet_client".

    Args:
        spec: a name of `names()`, with options in brackets where they differ from the defaults; `natural` is
            `by_id`.
        labels: the label of each row.
        n_clients: K; where the number of clients follows from the data (`by_id`, `semantic_emnist`,
            `semantic_tiny`), 0 takes them all.
        seed: decides all draws.
        ids: the client each row came from, where the data know it; only `by_id` uses it.
    """
    name, options = _given(spec)
    if name == "by_id":
        options["ids"] = ids
    return PARTITIONS[name](labels, n_clients, seed=seed, **options)


def resolved(spec: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and all options of a partition as it is written, defaults included.

    >>> resolved("natural")[0], resolved("dirichlet_client(alpha=1)")[1]["alpha"]
    ('by_id', 1.0)
    """
    name, given = _given(spec)
    return name, _options(name).with_defaults(given)


def _given(spec: str) -> tuple[str, dict[str, Any]]:
    called, options = parse_call(spec)
    name = ALIASES.get(called, called)
    if name not in PARTITIONS:
        raise unknown_name("partition", called, [*PARTITIONS, *ALIASES])
    _options(name).refuse_unknown(options)
    return name, options


def names() -> tuple[str, ...]:
    """Returns every partition's name."""
    return tuple(PARTITIONS)


def describe() -> list[PartitionDescription]:
    """Describes every partition, for listings."""
    return [
        PartitionDescription(
            name, (inspect.getdoc(function) or "").partition("\n")[0], _options(name).defaults
        )
        for name, function in PARTITIONS.items()
    ]


def _options(name: str) -> OptionSchema:
    """Returns the options of a partition, which checks their values itself, with the range it allows."""

    def is_option(parameter: Parameter) -> bool:
        return parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in ("seed", "ids")

    return OptionSchema.of(f"partition {name}", PARTITIONS[name], is_option, _with_their_defaults)


def _with_their_defaults(defaults: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{key}={value!r}" for key, value in defaults.items())
    return f"its options: {listed or 'none'}"
