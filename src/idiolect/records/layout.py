"""A tree of nested dicts as one flat dict, and back.

Leaves are named by JSON pointers (RFC 6901): `{"server": {"a/b": x}}` holds the leaf `/server/a~1b`.  The
layout is the same tree with `None` for every leaf; it can be stored as JSON and keeps the empty dicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["flatten", "unflatten"]


def flatten(tree: Mapping[Any, Any], prefix: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Gives the layout and the leaves by name.  A key that is an integer becomes its digits.

    >>> flatten({"server": {0: 1.5}, "private": {}})
    ({'server': {'0': None}, 'private': {}}, {'/server/0': 1.5})
    """
    layout: dict[str, Any] = {}
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        word = str(key)
        if word in layout:
            raise ValueError(f"the tree has two keys that read {word!r} under {prefix or '/'}")
        name = f"{prefix}/{word.replace('~', '~0').replace('/', '~1')}"
        if isinstance(value, Mapping):
            layout[word], below = flatten(value, name)
            leaves.update(below)
        else:
            layout[word] = None
            leaves[name] = value
    return layout, leaves


def unflatten(layout: Mapping[str, Any], leaves: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Builds the tree again; all its keys are strings.

    Raises:
        KeyError: the layout names a leaf that is not there.
    """
    tree: dict[str, Any] = {}
    for word, below in layout.items():
        name = f"{prefix}/{word.replace('~', '~0').replace('/', '~1')}"
        tree[word] = leaves[name] if below is None else unflatten(below, leaves, name)
    return tree
