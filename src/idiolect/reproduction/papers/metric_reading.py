"""A metric reading: which results of a run make up a number that a paper prints, and how they are read from the run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from idiolect.errors import UserError
from idiolect.records import MOMENTS, POPULATIONS, SPLITS, Run

__all__ = [
    "READING_KEYS",
    "MetricReading",
    "chosen_mixture",
    "means_by_client",
    "means_by_round",
    "read_values",
    "round_window",
]

SOURCES = ("run", "choice", "federation", "setting")
OVER = ("mean", "sd", "client")
FEDERATION_SIZES = ("clients", "classes", "local_classes", "train", "test")
ROUNDS = re.compile(r"last(?: (\d+))?|(around|round) (\d+)")
MARGIN = 10  # "around 200" is rounds 190 to 210


@dataclass(frozen=True)
class MetricReading:
    """Which results of a run make up a printed number.

    Args:
        source: ``run``: rows of the record; ``choice``: the mixing coefficient that the predictor stands for;
            ``federation``: sizes of the partition; ``setting``: a setting of the experiment.
        metric: the metric's name; for ``federation`` one of its sizes, for ``setting`` the setting's name.
        rounds: ``last``, ``last 10``, ``around 200`` or ``round 1``; the evaluated rounds in it are averaged.
        over: ``mean`` over the clients, ``sd`` (n - 1) over the clients of a run, or one ``client``.
        client: the client's number, where ``over`` is ``client``.
        delta: for local degradation: against the client's next ``selection`` or the next ``round``.
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
        """Raises where something is missing or misspelt; `where` names the place in the file."""
        _expect(where, "source", self.source, SOURCES)
        if self.source == "federation":
            _expect(where, "metric", self.metric, FEDERATION_SIZES)
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
    def merged(cls, *layers: Mapping[str, Any]) -> MetricReading:
        """Returns the reading of several blocks; later ones win, and keys that a reading lacks are ignored."""
        found = {key: value for layer in layers for key, value in layer.items() if key in READING_KEYS}
        return cls(**found)


READING_KEYS = frozenset(field.name for field in fields(MetricReading))


def _expect(where: str, key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{where}: {key} is {value!r}, not one of {', '.join(known)}")


def round_window(rounds: str, last: int) -> tuple[int, int]:
    """Returns the first and last round of a window in a run of ``last`` rounds.

    >>> round_window("last 10", 1000), round_window("around 200", 1000), round_window("last", 150)
    ((991, 1000), (190, 210), (150, 150))
    """
    found = ROUNDS.fullmatch(rounds)
    if found is None:
        raise ValueError(f"rounds {rounds!r} is no window")
    if found[2]:
        margin = MARGIN if found[2] == "around" else 0
        return int(found[3]) - margin, int(found[3]) + margin
    return last - int(found[1] or 1) + 1, last


def read_values(run: Run, reading: MetricReading) -> pd.Series:
    """Returns what a table cell needs of a run: one number per client or round, or a single one."""
    if reading.source == "choice":
        return pd.Series([chosen_mixture(run, reading.predictor)])
    if reading.population == "selected" and reading.over == "mean":
        return _means_of_window(run, reading)
    return means_by_client(run, reading)


def means_by_round(run: Run, reading: MetricReading) -> pd.DataFrame:
    """Returns mean and SD (n) over clients by round: columns `round`, `value`, `sd`."""
    groups = _matching_rows(run, reading).groupby("round")["value"]
    return pd.DataFrame({"value": groups.mean(), "sd": groups.std(ddof=0)}).reset_index()


def means_by_client(run: Run, reading: MetricReading) -> pd.Series:
    """Returns each client's mean over the evaluated rounds of the window."""
    rows = _in_window(_matching_rows(run, reading), run, reading)
    return rows.groupby("client")["value"].mean()


def chosen_mixture(run: Run, predictor: str) -> float:
    """Returns the mixing coefficient that a predictor such as ``mix(oracle)`` stands for."""
    member = str(run.manifest.get("choices", {}).get(predictor, ""))
    number = re.search(r"\((\d+(?:\.\d+)?)\)", member)
    if number is None:
        raise UserError(f"run {run.manifest['name']} does not say which mixture {predictor} is")
    return float(number[1])


def _means_of_window(run: Run, reading: MetricReading) -> pd.Series:
    """Returns each round's mean over the clients selected in it; clients of several rounds count once in each."""
    return _in_window(means_by_round(run, reading), run, reading).set_index("round")["value"]


def _matching_rows(run: Run, reading: MetricReading) -> pd.DataFrame:
    """Returns the rows that a reading names, of all rounds."""
    rows = run.rows
    wanted = (rows["metric"] == reading.metric) & (rows["split"] == reading.split)
    wanted &= (rows["population"] == reading.population) & (rows["moment"] == reading.moment)
    found = rows[wanted & (rows["predictor"] == reading.predictor)]
    if found.empty:
        raise UserError(
            f"run {run.manifest['name']} has no {reading.metric} of {reading.predictor} on {reading.split} "
            f"({reading.population} clients, {reading.moment})"
        )
    return found


def _in_window(rows: pd.DataFrame, run: Run, reading: MetricReading) -> pd.DataFrame:
    first, last = round_window(reading.rounds, int(run.manifest["spec"]["rounds"]))
    found = rows[rows["round"].between(first, last)]
    if found.empty:
        raise UserError(f"run {run.manifest['name']} was not evaluated in rounds {first} to {last}")
    return found
