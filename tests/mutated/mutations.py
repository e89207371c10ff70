"""How files are damaged and documents made hostile, by a seed."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

__all__ = ["damaged", "hostile", "toml"]

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, -0.0, 10**30, -(10**30), 2**63, 1e308, float("nan"), float("inf")),
    *("", "x", "=1+1", "<script>alert(1)</script>", "../../up", "\0", "\ud800", "é" * 300, "None", "[]"),
    *([], {}, [None], [[]], [[1], [1, 2]], [{}], {"": None}, {"a": {"b": []}}, [0.5], ["x", 1], [[["x"]]]),
)


def damaged(content: bytes, random: Random) -> bytes:
    """Returns bytes that differ from these in one of the ways in which files are damaged."""
    found = bytearray(content)
    place = random.randrange(len(found))
    match random.randrange(8):
        case 0 | 1:
            found[place] ^= 1 << random.randrange(8)
        case 2:
            del found[place:]
        case 3:
            found[place : place + random.randrange(1, 64)] = random.randbytes(random.randrange(64))
        case 4:
            length = random.randrange(1, 64)
            found[place : place + length] = bytes(len(found[place : place + length]))
        case 5:
            other = random.randrange(len(found))
            found[place:place] = found[other : other + random.randrange(1, 200)]
        case 6:
            del found[place : place + random.randrange(1, 200)]
        case 7:
            for _ in range(random.randrange(2, 12)):
                found[random.randrange(len(found))] = random.randrange(256)
    return bytes(found)


def hostile(document: dict[str, Any], random: Random) -> dict[str, Any]:
    """Returns a document in which one value, at any depth, is another, gone, or under another name."""
    found = copy.deepcopy(document)
    holder, key = random.choice(list(_places(found)))
    match random.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        case 2:
            holder[key] = _nested(random.choice(VALUES), random.randrange(1, 60))
        case _:
            holder[key] = copy.deepcopy(random.choice(VALUES))
    return found


def toml(value: Any) -> str:
    """Returns a value as TOML writes it in one line; what TOML cannot hold, such as None, comes out as no TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(below)}" for key, below in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def _nested(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def _places(tree: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Yields the holder and the key of values; those near the root several times, so that they are not rare."""
    keys = (
        list(tree) if isinstance(tree, dict) else range(min(len(tree), 3)) if isinstance(tree, list) else []
    )
    for key in keys:
        yield from [(tree, key)] * max(1, 6 - 3 * depth)
        yield from _places(tree[key], depth + 1)
