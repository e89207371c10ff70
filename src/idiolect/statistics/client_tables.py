"""Tables with one row for each client: methods side by side, the change between two methods, teacher rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from idiolect.errors import UserError, refuse_outside
from idiolect.records import Run
from idiolect.statistics.measurements import client_scores, primary_metric

__all__ = [
    "ChangeHistogram",
    "Groups",
    "change_histogram",
    "changes",
    "client_table",
    "refuse_other_metrics",
    "teacher_rounds",
    "user_table",
]

Groups = Mapping[str, Sequence[Run]]  # label -> runs that differ in nothing but the seed
TEACHER_METRIC = "teacher round"


def client_table(
    groups: Groups, predictor: str | None = None, *, metric: str | None = None, population: str = "all"
) -> pd.DataFrame:
    """Returns final values with one row per client and one column per method, as means over seeds.

    Clients are identified by their number.  Where the seed also draws the partition, client k of one seed is not
    client k of another, and the mean is over the clients with that number.

    Raises:
        UserError: two methods differ in seeds or clients, so that their numbers cannot be paired, or, without a given
            metric, in the one that they are judged by.
    """
    if metric is None:
        refuse_other_metrics(groups)
    columns: dict[str, pd.Series] = {}
    seeds: dict[str, list[int]] = {}
    for label, runs in groups.items():
        found = [client_scores(run, predictor, metric=metric, population=population) for run in runs]
        together = pd.concat(found, axis=1)
        if together.isna().any().any() or together.empty:
            name = metric or primary_metric(runs[0])
            raise UserError(f"the runs of {label} do not have the same clients with the metric {name!r}")
        columns[label] = together.mean(axis=1)
        seeds[label] = sorted(int(run.manifest["seed"]) for run in runs)
    first = next(iter(columns), "")
    for label, column in columns.items():
        if seeds[label] != seeds[first] or not column.index.equals(columns[first].index):
            raise UserError(
                f"{first} and {label} do not have the same seeds and clients and cannot be paired"
            )
    return pd.DataFrame(columns).rename_axis("client")


def refuse_other_metrics(groups: Groups) -> None:
    """Raises unless all runs are judged by the same metric."""
    named = {primary_metric(run): label for label, runs in groups.items() for run in runs}
    if len(named) > 1:
        (one, first), (other, second) = list(named.items())[:2]
        raise UserError(
            f"{first} is judged by {one} and {second} by {other}; name the metric to compare them by"
        )


def user_table(
    groups: Groups,
    predictor: str | None = None,
    *,
    metric: str | None = None,
    population: str = "all",
    ddof: int = 1,
) -> pd.DataFrame:
    """Returns `client_table` with the rows `Avg` and `SD` over clients below it.

    Args:
        ddof: 1 divides by n - 1 (PersFL's tables), 0 by n.
    """
    table = client_table(groups, predictor, metric=metric, population=population)
    below = pd.DataFrame({"Avg": table.mean(), "SD": table.std(ddof=ddof)}).T
    return pd.concat([table, below]).rename_axis("client")


class ChangeHistogram(NamedTuple):
    """A histogram of changes: bin i is `[edges[i], edges[i+1])`, the last closed; `below` clients are below 0."""

    edges: np.ndarray
    counts: np.ndarray
    below: int


def changes(method: Sequence[Run], baseline: Sequence[Run], metric: str | None = None) -> pd.Series:
    """Returns by client the headline value of `method` minus that of `baseline`, on the same clients and seeds."""
    table = client_table({"method": method, "baseline": baseline}, metric=metric)
    return table["method"] - table["baseline"]


def change_histogram(differences: pd.Series, bins: int = 20) -> ChangeHistogram:
    """Counts `differences` in bins of equal width with an edge at 0, so that no bin mixes gains and losses.

    >>> change_histogram(pd.Series([-0.2, 0.0, 0.1, 0.2]), bins=2).counts.tolist()
    [1, 3]
    """
    refuse_outside("bins", bins, 2)
    half = -(-bins // 2)
    reach = float(differences.abs().max()) or 1.0
    edges = reach * (np.arange(-half, half + 1) / half)
    counts, _ = np.histogram(differences.to_numpy(float), edges)
    return ChangeHistogram(edges, counts, int((differences < 0).sum()))


def teacher_rounds(runs: Sequence[Run]) -> pd.DataFrame:
    """Returns by client `round`, the mean over runs of the round its teacher comes from, and `runs` (PersFL, figure 2).

    Raises:
        UserError: a run has recorded no teachers.
    """
    found = []
    for run in runs:
        rows = run.rows[run.rows["metric"] == TEACHER_METRIC]
        if rows.empty:
            raise UserError(f"{run.manifest['name']} has no teacher rounds; PersFL records them")
        found.append(rows.set_index("client")["value"])
    rounds = pd.concat(found).groupby(level="client")
    return pd.DataFrame({"round": rounds.mean(), "runs": rounds.size()})
