"""The settings that the papers' authors tried, by name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any, NamedTuple

from idiolect.errors import unknown_name
from idiolect.methods.method_text import beyond_defaults

__all__ = ["ParameterGrid", "combinations", "grid", "grids", "with_none"]


class ParameterGrid(NamedTuple):
    """Args:
    methods: the settings of each method, by its name.
    defaults: every option of a method that its settings leave open, by its name.
    """

    name: str
    about: str
    methods: dict[str, list[dict[str, Any]]]
    defaults: dict[str, dict[str, Any]]

    def settings(self, in_scene: bool) -> dict[str, list[dict[str, Any]]]:
        """The settings of each method; outside a scene with those defaults that are not the method's any more."""
        if in_scene:
            return self.methods
        more = {name: beyond_defaults(name, self.defaults.get(name, {})) for name in self.methods}
        return {name: [more[name] | one for one in tried] for name, tried in self.methods.items()}


def with_none(options: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Options of methods as TOML holds them, which writes None as the word "none"."""
    return {
        name: {key: None if value == "none" else value for key, value in found.items()}
        for name, found in options.items()
    }


def combinations(values: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """All combinations, the last key moving fastest; of nothing there is one, the empty one.

    >>> combinations({"a": [1, 2], "b": ["x"]})
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


@cache
def grids() -> dict[str, ParameterGrid]:
    text = (files("idiolect.experiments") / "parameter_grids.toml").read_text("utf-8")
    return {
        name: ParameterGrid(
            name,
            block["about"],
            {
                m: tried if isinstance(tried, list) else combinations(tried)
                for m, tried in block["methods"].items()
            },
            with_none(block.get("defaults", {})),
        )
        for name, block in tomllib.loads(text).items()
    }


def grid(name: str) -> ParameterGrid:
    """
    >>> grid("map").methods["ditto"]
    [{'weight': 0.1}, {'weight': 0.01}, {'weight': 0.001}]
    """
    if name not in grids():
        raise unknown_name("grid", name, grids())
    return grids()[name]
