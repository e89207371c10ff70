"""Cells of a table: which experiments they need, and their number from what those runs gave."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import partial
from statistics import fmean, stdev
from typing import Any, NamedTuple

import pandas as pd

from idiolect.errors import UserError
from idiolect.experiments.campaign import RunOutcome, RunRequest
from idiolect.options import with_options
from idiolect.reproduction.entry import ORACLE, Entry, entry_of, rule_of
from idiolect.reproduction.papers import Cell, Reading
from idiolect.reproduction.plan import Ask
from idiolect.reproduction.readings import value

__all__ = ["cell_entry", "cell_tasks"]

SCALE = {"%": 100.0, "": 1.0}


def cell_tasks(cell: Cell, ask: Ask) -> list[RunRequest]:
    """One task for every setting of the method, scenario and seed; the cell's number needs them all."""
    found = []
    reading = ask.reading(cell.reading)
    for method in _settings(cell, ask):
        for name in cell.scenarios:
            for seed in ask.seeds:
                experiment, notes = ask.experiment(name, method, seed)
                key = (cell.table, cell.row, cell.column, method, name, seed)
                found.append(RunRequest(key, experiment, notes, partial(value, reading=reading)))
    return found


def cell_entry(cell: Cell, ask: Ask, outcomes: Mapping[Hashable, RunOutcome], note: str = "") -> Entry:
    """The cell's number beside the paper's.

    Of several settings the best mean over seeds counts, as in the paper; a cell of several scenarios is the mean of
    their best, each scenario having its own.
    """
    known: dict[str, Any] = {"row": cell.row, "column": cell.column, "unit": cell.unit, "note": note}
    known["rule"] = rule_of(cell.reading.predictor)
    if not ask.quick:
        known |= {"paper": cell.value, "paper_spread": cell.spread}
    key = (cell.table, cell.row, cell.column)
    settings = _settings(cell, ask)
    wanted = [outcomes[*key, m, n, s] for m in settings for n in cell.scenarios for s in ask.seeds]
    missing, failed = (list(dict.fromkeys(getattr(o, f) for o in wanted)) for f in ("missing", "failed"))
    if any(missing) or any(failed):
        return Entry(
            **known, missing="; ".join(filter(None, missing)), failed="; ".join(filter(None, failed))
        )
    scenes = [replace(cell, scenarios=(name,)) for name in cell.scenarios] if len(settings) > 1 else [cell]
    try:
        tried = [[_of_setting(scene, ask, method, outcomes) for method in settings] for scene in scenes]
    except UserError as error:
        return Entry(**known, failed=str(error))
    best = [max(found, key=lambda one: fmean(one.numbers)) for found in tried]
    if len(settings) > 1:
        known["rule"] = ORACLE
    spread = best[0].spread if len(best) == 1 else None
    if len(settings) > 1 and len(scenes) == 1:
        spread = stdev(fmean(one.numbers) for one in tried[0])
    ran_as = best[0].ran_as
    if len(scenes) > 1:
        ran_as = "; ".join(f"{name}: {one.ran_as}" for name, one in zip(cell.scenarios, best, strict=True))
    numbers = [fmean(of_seed) for of_seed in zip(*(one.numbers for one in best), strict=True)]
    found = entry_of(numbers, **known, spread=spread, ran_as=ran_as)
    return replace(found, seeds=len(ask.seeds))


def _settings(cell: Cell, ask: Ask) -> list[str]:
    method = cell.official_method if ask.preset == "official" and cell.official_method else cell.method
    return [with_options(one, cell.options) for one in ask.settings(method)]


class _Setting(NamedTuple):
    """What one setting of the method gave: a number for each seed, or a single one over all of them."""

    numbers: list[float]
    spread: float | None
    ran_as: str


def _of_setting(cell: Cell, ask: Ask, method: str, outcomes: Mapping[Hashable, RunOutcome]) -> _Setting:
    scale = SCALE[cell.unit]
    by_seed = []
    for seed in ask.seeds:
        keys = [(cell.table, cell.row, cell.column, method, name, seed) for name in cell.scenarios]
        by_seed.append([outcomes[key].value for key in keys])
    ran_as = ask.experiment(cell.scenarios[0], method, ask.seeds[0])[0].method
    if cell.reading.over == "sd":
        together = pd.concat([series for (series,) in by_seed], axis=1).mean(axis=1)
        return _Setting([scale * float(together.std(ddof=1))], None, ran_as)
    numbers = [scale * fmean(_number(s, cell.reading) for s in scenes) for scenes in by_seed]
    spread = None
    if cell.spread is not None and cell.reading.population == "all" and len(cell.scenarios) == 1:
        spread = scale * fmean(float(series.std(ddof=0)) for (series,) in by_seed)
    return _Setting(numbers, spread, ran_as)


def _number(series: pd.Series, reading: Reading) -> float:
    if reading.over != "client":
        return float(series.mean())
    if reading.client not in series.index:
        raise UserError(f"there is no client {reading.client}; the run has {len(series)}")
    return float(series[reading.client])
