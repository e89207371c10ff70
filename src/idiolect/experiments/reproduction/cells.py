"""Cells of a table: which experiments they need, and their number from what those runs gave."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import partial
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from idiolect.errors import UserError
from idiolect.experiments.papers import Cell, Reading
from idiolect.experiments.reproduction.entry import ORACLE, Entry, entry_of, rule_of
from idiolect.experiments.reproduction.plan import Ask, with_options
from idiolect.experiments.reproduction.readings import value
from idiolect.experiments.reproduction.tasks import Outcome, Task

__all__ = ["cell_entry", "cell_tasks"]

SCALE = {"%": 100.0, "": 1.0}


def cell_tasks(cell: Cell, ask: Ask) -> list[Task]:
    """One task for every setting of the method, scenario and seed; the cell's number needs them all."""
    found = []
    reading = ask.reading(cell.reading)
    for method in _settings(cell, ask):
        for name in cell.scenarios:
            for seed in ask.seeds:
                experiment, notes = ask.experiment(name, method, seed)
                key = (cell.table, cell.row, cell.column, method, name, seed)
                found.append(Task(key, experiment, notes, partial(value, reading=reading)))
    return found


def cell_entry(cell: Cell, ask: Ask, outcomes: Mapping[Hashable, Outcome], note: str = "") -> Entry:
    """The cell's number beside the paper's.  Of several settings the best mean counts, as in the paper."""
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
    try:
        found = [_of_setting(cell, ask, method, outcomes, known) for method in settings]
    except UserError as error:
        return Entry(**known, failed=str(error))
    best = max(found, key=lambda one: one.value or 0.0)
    if len(found) > 1:
        return replace(best, spread=stdev([one.value or 0.0 for one in found]), rule=ORACLE)
    return best


def _settings(cell: Cell, ask: Ask) -> list[str]:
    method = cell.official_method if ask.preset == "official" and cell.official_method else cell.method
    return [with_options(one, cell.options) for one in ask.settings(method)]


def _of_setting(
    cell: Cell, ask: Ask, method: str, outcomes: Mapping[Hashable, Outcome], known: dict[str, Any]
) -> Entry:
    scale = SCALE[cell.unit]
    by_seed = []
    for seed in ask.seeds:
        keys = [(cell.table, cell.row, cell.column, method, name, seed) for name in cell.scenarios]
        by_seed.append([outcomes[key].value for key in keys])
    ran_as = ask.experiment(cell.scenarios[0], method, ask.seeds[0])[0].method
    if cell.reading.over == "sd":
        together = pd.concat([series for (series,) in by_seed], axis=1).mean(axis=1)
        return Entry(**known, value=scale * float(together.std(ddof=1)), seeds=len(by_seed), ran_as=ran_as)
    numbers = [scale * fmean(_number(s, cell.reading) for s in scenes) for scenes in by_seed]
    spread = None
    if cell.spread is not None and cell.reading.population == "all" and len(cell.scenarios) == 1:
        spread = scale * fmean(float(series.std(ddof=0)) for (series,) in by_seed)
    return entry_of(numbers, **known, spread=spread, ran_as=ran_as)


def _number(series: pd.Series, reading: Reading) -> float:
    if reading.over != "client":
        return float(series.mean())
    if reading.client not in series.index:
        raise UserError(f"there is no client {reading.client}; the run has {len(series)}")
    return float(series[reading.client])
