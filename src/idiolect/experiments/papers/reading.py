"""A reading: which numbers of a run make the number that a paper prints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from idiolect.records import MOMENTS, POPULATIONS, SPLITS

__all__ = ["KEYS", "Reading", "window"]

SOURCES = ("run", "choice", "federation", "setting")
OVER = ("mean", "sd", "client")
FEDERATION = ("clients", "classes", "local_classes", "train", "test")
ROUNDS = re.compile(r"last(?: (\d+))?|(around|round) (\d+)")
MARGIN = 10  # "around 200" is rounds 190 to 210


@dataclass(frozen=True)
class Reading:
    """Args:
    source: ``run``: rows of the record; ``choice``: the mixing coefficient that the predictor stands for;
        ``federation``: sizes of the partition; ``setting``: a setting of the experiment.
    rounds: ``last``, ``last 10``, ``around 200`` or ``round 1``; evaluated rounds in it are averaged.
    delta: of local degradation: against the client's next ``selection`` or the next ``round``.
    over: ``mean`` over the clients, ``sd`` (n - 1) over the clients of their means over runs, or one ``client``.
    """

    source: str = "run"
    metric: str = ""
    split: str = ""
    population: str = ""
    predictor: str = ""
    moment: str = ""
    rounds: str = "last"
    over: str = "mean"
    client: int | None = None
    delta: str = "selection"

    def check(self, where: str) -> None:
        """Raises where something is missing or misspelt."""
        _expect(where, "source", self.source, SOURCES)
        if self.source == "federation":
            _expect(where, "metric", self.metric, FEDERATION)
        if self.source == "setting" and not self.metric:
            raise ValueError(f"{where}: a setting needs its name as metric")
        if self.source in ("run", "choice") and not self.predictor:
            raise ValueError(f"{where}: no predictor")
        if self.source == "run":
            _expect(where, "split", self.split, SPLITS)
            _expect(where, "population", self.population, POPULATIONS)
            _expect(where, "moment", self.moment, MOMENTS)
            _expect(where, "over", self.over, OVER)
            if not self.metric:
                raise ValueError(f"{where}: no metric")
        if not ROUNDS.fullmatch(self.rounds):
            raise ValueError(f"{where}: rounds {self.rounds!r} is no window")
        if (self.client is not None) != (self.over == "client"):
            raise ValueError(f"{where}: over = 'client' goes with a client, and with nothing else")

    @classmethod
    def merged(cls, *layers: Mapping[str, Any]) -> Reading:
        """Later layers win; keys that are none of a reading's are passed over."""
        found = {key: value for layer in layers for key, value in layer.items() if key in KEYS}
        return cls(**found)


KEYS = frozenset(field.name for field in fields(Reading))


def window(rounds: str, last: int) -> tuple[int, int]:
    """First and last round of a window in a run of ``last`` rounds.

    >>> window("last 10", 1000), window("around 200", 1000), window("last", 150)
    ((991, 1000), (190, 210), (150, 150))
    """
    found = ROUNDS.fullmatch(rounds)
    if found is None:
        raise ValueError(f"rounds {rounds!r} is no window")
    if found[2]:
        margin = MARGIN if found[2] == "around" else 0
        return int(found[3]) - margin, int(found[3]) + margin
    return last - int(found[1] or 1) + 1, last


def _expect(where: str, key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{where}: {key} is {value!r}, not one of {', '.join(known)}")
