"""Confusion matrices of a finished run, from the counts of its final evaluation by class."""

from __future__ import annotations

import pandas as pd

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.statistics.calibration import final_counts
from idiolect.statistics.measurements import headline

__all__ = ["confusion_matrix"]


def confusion_matrix(
    run: Run,
    predictor: str | None = None,
    *,
    client: int | None = None,
    population: str = "all",
    split: str = "test",
) -> pd.DataFrame:
    """Returns the samples of each true class (rows) by predicted class (columns), with the classes' names.

    Args:
        client: one client's matrix; None adds up all clients of the population.

    Raises:
        UserError: the run has no counts, because it is older, its task has no classes, or the client is unknown.
    """
    rows = final_counts(run.confusion, run, predictor, population, split)
    whose = ""
    if client is not None:
        rows, whose = rows[rows["client"] == client], f" of client {client}"
    if rows.empty:
        name = predictor or headline(run)
        raise UserError(f"{run.manifest['name']} has no counts of {name} by class{whose}")
    names = [str(name) for name in run.manifest.get("class_names", ())]
    last = int(max(rows["truth"].max(), rows["predicted"].max()))
    classes = range(max(len(names), last + 1))
    summed = rows.groupby(["truth", "predicted"])["count"].sum().unstack(fill_value=0)
    matrix = summed.reindex(index=classes, columns=classes, fill_value=0)
    if len(names) == len(classes):
        matrix.index = matrix.columns = pd.Index(names)
    return matrix.rename_axis(index="truth", columns="predicted").astype(int)
