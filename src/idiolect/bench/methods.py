"""The methods that the bench carries a plain loop of, with the options that make their work the same in every round."""

from __future__ import annotations

from typing import NamedTuple

from idiolect.bench import plain_map, plain_persfl, plain_superfed
from idiolect.bench.plain import Plain
from idiolect.errors import unknown_name
from idiolect.methods.catalogue import identifier

__all__ = ["Entry", "entry_of", "names"]


class Entry(NamedTuple):
    """Args:
    text: the method as the library spells it.
    phases: what is timed: ``round``, and ``end`` where the method works once more after the last round.
    """

    text: str
    plain: type[Plain]
    phases: tuple[str, ...] = ("round",)


_METHODS = {
    "fedavg": Entry("fedavg", Plain),
    "map": Entry(plain_map.METHOD, plain_map.PlainMap),
    "persfl": Entry(plain_persfl.METHOD, plain_persfl.PlainPersFL, ("round", "end")),
    "superfed_mm": Entry(plain_superfed.METHOD, plain_superfed.PlainSuPerFed),
}


def names() -> list[str]:
    return list(_METHODS)


def entry_of(name: str) -> Entry:
    known = identifier(name)
    if known not in _METHODS:
        raise unknown_name("method to bench", name, _METHODS)
    return _METHODS[known]
