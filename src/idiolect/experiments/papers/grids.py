"""The settings that the papers' authors tried, by name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any, NamedTuple

from idiolect.errors import unknown_name

__all__ = ["Grid", "combinations", "grid", "grids"]


class Grid(NamedTuple):
    """Args:
    methods: the settings of each method, by its name.
    """

    name: str
    about: str
    methods: dict[str, list[dict[str, Any]]]


def combinations(values: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """All combinations, the last key moving fastest; of nothing there is one, the empty one.

    >>> combinations({"a": [1, 2], "b": ["x"]})
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


@cache
def grids() -> dict[str, Grid]:
    text = (files("idiolect.experiments.papers") / "grids.toml").read_text("utf-8")
    return {
        name: Grid(
            name,
            block["about"],
            {
                m: tried if isinstance(tried, list) else combinations(tried)
                for m, tried in block["methods"].items()
            },
        )
        for name, block in tomllib.loads(text).items()
    }


def grid(name: str) -> Grid:
    """
    >>> grid("map").methods["ditto"]
    [{'weight': 0.1}, {'weight': 0.01}, {'weight': 0.001}]
    """
    if name not in grids():
        raise unknown_name("grid", name, grids())
    return grids()[name]
