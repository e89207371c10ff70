"""Clients against methods: every method on the same clients and seeds, seeds averaged first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.statistics.measurements import client_scores

__all__ = ["Groups", "client_table", "user_table"]

Groups = Mapping[str, Sequence[Run]]  # by label: runs that differ in the seed alone


def client_table(
    groups: Groups, predictor: str | None = None, *, metric: str = "accuracy", population: str = "all"
) -> pd.DataFrame:
    """Final values, one row per client, one column per method: the mean over seeds.

    A client is known by its number.  Where the seed also draws the partition, client k of one seed is another
    than client k of the next, and the mean is over the clients that bear the number.

    Raises:
        UserError: two methods differ in seeds or clients, so that their numbers are not paired.
    """
    columns: dict[str, pd.Series] = {}
    seeds: dict[str, list[int]] = {}
    for label, runs in groups.items():
        found = [client_scores(run, predictor, metric=metric, population=population) for run in runs]
        together = pd.concat(found, axis=1)
        if together.isna().any().any() or together.empty:
            raise UserError(f"the runs of {label} have not the same clients with the metric {metric!r}")
        columns[label] = together.mean(axis=1)
        seeds[label] = sorted(int(run.manifest["seed"]) for run in runs)
    first = next(iter(columns), "")
    for label, column in columns.items():
        if seeds[label] != seeds[first] or not column.index.equals(columns[first].index):
            raise UserError(f"{first} and {label} have not the same seeds and clients and cannot be paired")
    return pd.DataFrame(columns).rename_axis("client")


def user_table(
    groups: Groups,
    predictor: str | None = None,
    *,
    metric: str = "accuracy",
    population: str = "all",
    ddof: int = 1,
) -> pd.DataFrame:
    """`client_table` with the rows `Avg` and `SD` over users below it.

    Args:
        ddof: 1 divides by n - 1 (PersFL's tables), 0 by n.
    """
    table = client_table(groups, predictor, metric=metric, population=population)
    below = pd.DataFrame({"Avg": table.mean(), "SD": table.std(ddof=ddof)}).T
    return pd.concat([table, below]).rename_axis("client")
