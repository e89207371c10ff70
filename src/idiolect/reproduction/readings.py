"""From the rows of a run to the number that a reading names."""

from __future__ import annotations

import re

import pandas as pd

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reproduction.papers import Reading
from idiolect.reproduction.papers.reading import window

__all__ = ["by_client", "by_round", "chosen", "rows_of", "value"]


def rows_of(run: Run, reading: Reading) -> pd.DataFrame:
    """The rows that a reading names, of all rounds."""
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


def by_round(run: Run, reading: Reading) -> pd.DataFrame:
    """Mean and SD (n) over clients by round: columns `round`, `value`, `sd`."""
    groups = rows_of(run, reading).groupby("round")["value"]
    return pd.DataFrame({"value": groups.mean(), "sd": groups.std(ddof=0)}).reset_index()


def by_client(run: Run, reading: Reading) -> pd.Series:
    """Mean over the window's evaluated rounds, by client."""
    rows = rows_of(run, reading)
    first, last = window(reading.rounds, int(run.manifest["spec"]["rounds"]))
    rows = rows[rows["round"].between(first, last)]
    if rows.empty:
        raise UserError(f"run {run.manifest['name']} was not evaluated in rounds {first} to {last}")
    return rows.groupby("client")["value"].mean()


def value(run: Run, reading: Reading) -> pd.Series:
    """What is kept of a run for a cell: one number per client, or a single one."""
    if reading.source == "choice":
        return pd.Series([chosen(run, reading.predictor)])
    if reading.population == "selected" and reading.over == "mean":
        return _mean_of_rounds(run, reading)
    return by_client(run, reading)


def _mean_of_rounds(run: Run, reading: Reading) -> pd.Series:
    """Every round's mean over the clients selected in it; clients of several rounds count once in each."""
    means = by_round(run, reading)
    first, last = window(reading.rounds, int(run.manifest["spec"]["rounds"]))
    means = means[means["round"].between(first, last)]
    if means.empty:
        raise UserError(f"run {run.manifest['name']} was not evaluated in rounds {first} to {last}")
    return means.set_index("round")["value"]


def chosen(run: Run, predictor: str) -> float:
    """The mixing coefficient that a predictor such as ``mix(oracle)`` stands for."""
    member = str(run.manifest.get("choices", {}).get(predictor, ""))
    number = re.search(r"\((\d+(?:\.\d+)?)\)", member)
    if number is None:
        raise UserError(f"run {run.manifest['name']} does not say which mixture {predictor} is")
    return float(number[1])
