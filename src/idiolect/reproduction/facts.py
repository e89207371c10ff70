"""Cells that need no run: sizes of a federation, settings of an experiment."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from idiolect.data.availability import availability
from idiolect.engines import place
from idiolect.errors import UserError
from idiolect.experiments.execution import Execution
from idiolect.experiments.setting import prepare
from idiolect.experiments.spec import Experiment
from idiolect.reproduction.entry import Entry
from idiolect.reproduction.papers import Cell
from idiolect.reproduction.plan import Ask

__all__ = ["fact_entry"]


def fact_entry(cell: Cell, ask: Ask, where: Execution) -> Entry:
    """The cell's fact beside the paper's."""
    experiment, _ = ask.experiment(cell.scenarios[0], cell.method or "fedavg", ask.seeds[0])
    known: dict[str, Any] = {"row": cell.row, "column": cell.column, "unit": cell.unit}
    known |= {} if ask.quick else {"paper": cell.value}
    if cell.reading.source == "setting":
        return Entry(**known, value=float(getattr(experiment, cell.reading.metric)), seeds=1)
    data = availability(experiment.dataset, where.data_dir)
    if not data.present:
        return Entry(**known, missing=f"{data.dataset} is not on this machine; {data.advice}")
    try:
        sizes = _sizes(experiment, where)
    except UserError as error:
        return Entry(**known, failed=str(error))
    return Entry(**known, value=sizes[cell.reading.metric], seeds=1)


@lru_cache(maxsize=8)
def _sizes(experiment: Experiment, where: Execution) -> dict[str, float]:
    """Of the federation: clients, classes, and means over clients of classes, training and test samples."""
    federation = prepare(experiment, place(where.engine, where.device), where.data_dir).federation
    train, test = federation.class_counts("train"), federation.class_counts("test")
    return {
        "clients": float(federation.population),
        "classes": float(federation.n_classes),
        "local_classes": float(((train + test) > 0).sum(1).mean()),
        "train": float(train.sum(1).mean()),
        "test": float(test.sum(1).mean()),
    }
