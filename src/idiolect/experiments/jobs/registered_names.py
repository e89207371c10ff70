"""What the user's own code has registered in this process, as a value that another process can take over."""

from __future__ import annotations

import linecache
from types import ModuleType
from typing import Any, NamedTuple

from idiolect import own_code
from idiolect.data import catalogue as datasets
from idiolect.evaluation import metrics
from idiolect.methods import catalogue as methods
from idiolect.models import registered_models as models
from idiolect.partition import catalogue as partitions

__all__ = ["RegisteredNames", "registered_here", "take_over"]

WHOLE = 4  # members of an entry of ``linecache`` whose lines are read


class RegisteredNames(NamedTuple):
    """Datasets, networks, methods, parts, partitions and metrics of the user's own, by name.

    Args:
        loaded: code that has run, by digest; ``given`` and ``plugins`` are where it came from.
        lines: the text behind functions that stand in no file, such as those of a notebook.  The name of a run covers
            the text of own functions, so that another process must see the same text.
    """

    datasets: dict[str, Any]
    models: dict[str, Any]
    methods: dict[str, Any]
    parts: dict[str, Any]
    partitions: dict[str, Any]
    metrics: list[Any]
    loaded: dict[str, own_code.LoadedCode]
    given: dict[str, None]
    plugins: set[str]
    lines: dict[str, Any]


def registered_here() -> RegisteredNames:
    """Returns everything that was registered in this process."""
    return RegisteredNames(
        dict(datasets.REGISTERED),
        dict(models.REGISTERED),
        {name: entry for name, entry in methods.METHODS.items() if name not in methods.BUILT_IN},
        {name: make for name, make in methods.PARTS.items() if name not in methods.BUILT_IN},
        {name: made for name, made in partitions.PARTITIONS.items() if name not in partitions.BUILT_IN},
        metrics._KNOWN[metrics.BUILT_IN :],
        {digest: loaded for digest, (loaded, _) in own_code._LOADED.items()},
        dict(own_code._GIVEN),
        set(own_code._PLUGINS),
        {file: (entry[0], None, *entry[2:]) for file, entry in linecache.cache.items() if _is_text(entry)},
    )


def _is_text(entry: Any) -> bool:
    """Whether an entry of ``linecache`` holds a text that is read from no file."""
    return len(entry) == WHOLE and entry[1] is None


def take_over(names: RegisteredNames) -> None:
    """Registers the names of another process in this one."""
    datasets.REGISTERED.update(names.datasets)
    models.REGISTERED.update(names.models)
    methods.METHODS.update(names.methods)
    methods.PARTS.update(names.parts)
    partitions.PARTITIONS.update(names.partitions)
    metrics._KNOWN[metrics.BUILT_IN :] = names.metrics
    for digest, loaded in names.loaded.items():
        own_code._LOADED.setdefault(digest, (loaded, ModuleType(loaded.source)))
    own_code._GIVEN.update(names.given)
    own_code._PLUGINS.update(names.plugins)
    linecache.cache.update(names.lines)
