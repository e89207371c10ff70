"""A whole figure, or some of its scenarios and methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from idiolect.experiments.execution import Execution
from idiolect.experiments.progress import Watcher
from idiolect.records import write_atomically
from idiolect.reproduction.entry import Entry
from idiolect.reproduction.figures import figure_entries
from idiolect.reproduction.lines import EVERY_ROUND, SUMMARIES
from idiolect.reproduction.of_study import STUDIES, whole_study
from idiolect.reproduction.of_table import table_entries
from idiolect.reproduction.papers import Figure, table
from idiolect.reproduction.papers.figure import KINDS
from idiolect.reproduction.picture import points_of_tables, write_picture
from idiolect.reproduction.plan import Ask
from idiolect.reproduction.result import Reproduction, refuse_unknown, written

__all__ = ["whole_figure"]


def whole_figure(
    found: Figure,
    ask: Ask,
    where: Execution,
    watcher: Watcher,
    scenarios: Sequence[str],
    methods: Sequence[str],
    formats: Sequence[str],
) -> Reproduction:
    """Numbers of all lines, their points as CSV, and the picture."""
    if found.kind in ("schematic", "unknown"):
        note = f"nothing is run for {found.id}: {KINDS[found.kind]}"
        return Reproduction(found.id, found.caption, ask.quick, (), (note,), None)
    if found.kind in STUDIES:
        return whole_study(found, ask, where, watcher, scenarios, formats)
    if found.kind == "table":
        entries = _of_tables(found, ask, where, watcher, methods)
        done = written(found.id, found.caption, entries, found.notes, ask, where)
        points = points_of_tables(entries, found.tables)
    else:
        done, points = _of_runs(found, ask, where, watcher, scenarios, methods)
    if len(points) and done.folder:
        _write_points(points, done.folder, found, ask.quick, formats)
    return done


def _of_runs(
    found: Figure,
    ask: Ask,
    where: Execution,
    watcher: Watcher,
    scenarios: Sequence[str],
    methods: Sequence[str],
) -> tuple[Reproduction, pd.DataFrame]:
    refuse_unknown("scenario", scenarios, found.scenarios)
    lines = (*found.lines, *found.compared)
    refuse_unknown("method", methods, {line.method.partition("(")[0] for line in lines})
    ask = replace(ask, every_round=found.kind in EVERY_ROUND)
    entries, points = figure_entries(found, ask, where, watcher, scenarios, methods)
    told = [f"a line's number: {SUMMARIES[found.kind][0]}", *found.notes]
    if found.kind == "degradation":
        told.append(
            f"a download is compared with the client's last personalised model at the next {ask.delta}"
        )
    told += [f"the paper on {number.what}: {number.value:g}" for number in found.numbers if not ask.quick]
    return written(found.id, found.caption, entries, told, ask, where), points


def _of_tables(
    found: Figure, ask: Ask, where: Execution, watcher: Watcher, methods: Sequence[str]
) -> list[Entry]:
    """A column of several tables, each table a column of this one."""
    return [
        replace(one, column=id)
        for id in found.tables
        for one in table_entries(table(id), ask, where, watcher, [found.column], methods)
    ]


def _write_points(
    points: pd.DataFrame, folder: Path, found: Figure, quick: bool, formats: Sequence[str]
) -> None:
    first = [name for name in ("panel", "line", "seed") if name in points]
    ordered = points[[*first, *(name for name in points if name not in first)]]
    write_atomically(folder / f"{found.id}-points.csv", ordered.to_csv(index=False, lineterminator="\n"))
    write_picture(points, found, folder, quick, formats)
