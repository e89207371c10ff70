"""Parameter grids by name: the settings of methods that the papers' authors tried, read from a TOML file."""

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
    """The settings of methods that the authors of a paper tried.

    Args:
        methods: the settings of each method, by its name.
        defaults: every option of a method that its settings leave open, by the method's name.
    """

    name: str
    about: str
    methods: dict[str, list[dict[str, Any]]]
    defaults: dict[str, dict[str, Any]]

    def settings(self, in_scene: bool) -> dict[str, list[dict[str, Any]]]:
        """Returns the settings of each method.

        Args:
            in_scene: whether a scenario states the options that the settings leave open; otherwise those that differ
                from the method's own defaults are added.
        """
        if in_scene:
            return self.methods
        more = {name: beyond_defaults(name, self.defaults.get(name, {})) for name in self.methods}
        return {name: [more[name] | one for one in tried] for name, tried in self.methods.items()}


def with_none(options: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns options of methods with None in place of the word "none", because TOML cannot write None."""
    return {
        name: {key: None if value == "none" else value for key, value in found.items()}
        for name, found in options.items()
    }


def combinations(values: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Returns all combinations, with the last key moving fastest; no values at all make one empty combination.

    >>> combinations({"a": [1, 2], "b": ["x"]})
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


@cache
def grids() -> dict[str, ParameterGrid]:
    """Returns every grid by name."""
    text = (files("idiolect.experiments.sweep") / "parameter_grids.toml").read_text("utf-8")
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
    """Returns a grid by its name.

    >>> grid("map").methods["ditto"]
    [{'weight': 0.1}, {'weight': 0.01}, {'weight': 0.001}]
    """
    if name not in grids():
        raise unknown_name("grid", name, grids())
    return grids()[name]
