"""The catalogue of partitions by name, as they are written in a configuration or on the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from idiolect.errors import UserError, unknown_name
from idiolect.option_parsing import OptionSchema, parse_call
from idiolect.own_code import load_plugins, source_digest
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

__all__ = [
    "PartitionDescription",
    "describe",
    "names",
    "own_sources",
    "partition",
    "register_partition",
    "resolved",
]

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
BUILT_IN = frozenset(PARTITIONS)  # what every process knows
ALIASES = {"natural": "by_id"}  # the papers' word for it
GIVEN = ("seed", "ids")  # keyword arguments that are no options


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
    if "ids" in inspect.signature(PARTITIONS[name]).parameters:
        options["ids"] = ids
    found = PARTITIONS[name](labels, n_clients, seed=seed, **options)
    if not isinstance(found, Partition):
        raise UserError(f"partition {name} returned {type(found).__name__}, not a Partition")
    return found


def register_partition(name: str, function: Callable[..., Partition]) -> None:
    """Makes a partition of your own known by name, as if it were in the package.

    A finished run is known by the partition's name, its options and the text of the function, with what it names in its
    own module: changed code makes another run.

    Args:
        name: lower_snake, not taken yet.
        function: takes the labels of all rows, the number of clients and the keyword argument ``seed``, and returns a
            ``Partition``.  Further keyword-only arguments, with defaults, are its options; it gets the owner of each
            row, where the data name owners, if it takes ``ids``.

    >>> def halves(labels, n_clients, *, seed, at=0.5):
    ...     cut = int(at * len(labels))
    ...     return Partition((range(cut), range(cut, len(labels))))
    >>> register_partition("halves", halves)
    >>> [len(rows) for rows in partition("halves(at=0.25)", [0, 1, 0, 1], 2, 0).clients]
    [1, 3]
    >>> del PARTITIONS["halves"]
    """
    if not (isinstance(name, str) and name.isidentifier() and name == name.lower()):
        raise UserError(f"{name!r} cannot name a partition; use small letters, digits and underscores")
    if name in PARTITIONS or name in ALIASES:
        raise UserError(f"{name} is a partition already; choose another name")
    if not callable(function):
        raise UserError(f"partition {name} needs a function, not {function!r}")
    parameters = list(inspect.signature(function).parameters.values())
    if len(_by_position(parameters)) != 2 or "seed" not in [p.name for p in parameters[2:]]:
        raise UserError(f"the function of partition {name} must take (labels, n_clients, *, seed)")
    for option in parameters[2:]:
        if option.name not in GIVEN and (
            option.kind is not option.KEYWORD_ONLY or option.default is option.empty
        ):
            raise UserError(f"partition {name}: option {option.name} must be keyword-only and have a default")
    PARTITIONS[name] = function


def _by_position(parameters: list[Parameter]) -> list[Parameter]:
    return [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name not in GIVEN
    ]


def own_sources(spec: str) -> dict[str, str]:
    """Returns, by name, a digest of the text of the partition if it is a registered one."""
    name, _ = _given(spec)
    digest = source_digest(PARTITIONS[name])
    return {name: digest} if digest else {}


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
        load_plugins()
    if name not in PARTITIONS:
        raise unknown_name("partition", called, [*PARTITIONS, *ALIASES])
    _options(name).refuse_unknown(options)
    return name, options


def names() -> tuple[str, ...]:
    """Returns every partition's name."""
    load_plugins()
    return tuple(PARTITIONS)


def describe() -> list[PartitionDescription]:
    """Describes every partition, for listings; after a partition comes its other name."""
    load_plugins()
    found = []
    for name, function in PARTITIONS.items():
        idea, defaults = (inspect.getdoc(function) or "").partition("\n")[0], _options(name).defaults
        found.append(PartitionDescription(name, idea, defaults))
        for other in (alias for alias, meant in ALIASES.items() if meant == name):
            found.append(PartitionDescription(other, f"Another name of {name}.", defaults))
    return found


def _options(name: str) -> OptionSchema:
    """Returns the options of a partition, which checks their values itself, with the range it allows."""

    def is_option(parameter: Parameter) -> bool:
        return parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in GIVEN

    return OptionSchema.of(f"partition {name}", PARTITIONS[name], is_option, _with_their_defaults)


def _with_their_defaults(defaults: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{key}={value!r}" for key, value in defaults.items())
    return f"its options: {listed or 'none'}"
