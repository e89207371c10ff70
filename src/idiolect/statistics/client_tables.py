"""Tables with one row for each client: methods side by side, the change between two methods, teacher rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from idiolect.errors import UserError, refuse_outside
from idiolect.records import Run
from idiolect.statistics.measurements import client_scores, primary_metric
from idiolect.statistics.reading import LAST, Reading
from idiolect.statistics.replicates import Replicate, over_replicates, replicate_of

__all__ = [
    "ChangeHistogram",
    "Groups",
    "change_histogram",
    "changes",
    "client_labels",
    "client_table",
    "mean_over_seeds",
    "refuse_other_metrics",
    "same_clients",
    "teacher_rounds",
    "user_table",
]

Groups = Mapping[str, Sequence[Run]]  # label -> runs that differ in nothing but their seeds
TEACHER_METRIC = "teacher round"


def same_clients(runs: Iterable[Run]) -> bool:
    """Returns whether client k is the same client in all runs: one partition, or clients that have names."""
    runs = list(runs)
    names = {tuple(run.manifest.get("client_names") or ()) for run in runs}
    return len({replicate_of(run).data_seed for run in runs}) <= 1 or (len(names) == 1 and names != {()})


def mean_over_seeds(runs: Sequence[Run], values: Sequence[pd.Series]) -> pd.Series:
    """Returns the mean over runs by client, for runs in which client k is the same client; NaN where a run lacks it.

    Where the seed also draws the partition, client k of one run is not client k of another: the index is then
    (data_seed, client), and means are over the runs with that data seed.

    Args:
        values: for each run, a value by client.
    """
    if same_clients(runs):
        return pd.concat(list(values), axis=1).mean(axis=1, skipna=False).rename_axis("client")
    drawn: dict[int, list[pd.Series]] = {}
    for run, found in zip(runs, values, strict=True):
        drawn.setdefault(replicate_of(run).data_seed, []).append(found)
    means = {seed: pd.concat(found, axis=1).mean(axis=1, skipna=False) for seed, found in drawn.items()}
    return pd.concat(means, names=["data_seed", "client"])


def client_labels(index: pd.Index) -> list[int | str]:
    """Returns what the rows of a table by client are called: the client's number, or `data seed 0, client 3`.

    Args:
        index: of clients, or of (data_seed, client) where clients differ between data seeds.
    """
    if index.nlevels == 1:
        return list(index)
    return [f"data seed {seed}, client {client}" for seed, client in index]


def client_table(
    groups: Groups,
    predictor: str | None = None,
    *,
    metric: str | None = None,
    population: str = "all",
    reading: Reading = LAST,
) -> pd.DataFrame:
    """Returns final values with one row per client and one column per method, as means over seeds.

    Where the seed also draws the partition, client k of one seed is not client k of another: rows are then
    (data_seed, client), see `mean_over_seeds`.

    Raises:
        UserError: two methods differ in seeds or clients, so that their numbers cannot be paired, or, without a given
            metric, in the one that they are judged by.
    """
    if metric is None:
        refuse_other_metrics(groups)
    columns: dict[str, pd.Series] = {}
    seeds: dict[str, list[Replicate]] = {}
    for label, runs in groups.items():
        found = [
            client_scores(run, predictor, metric=metric, population=population, reading=reading)
            for run in runs
        ]
        columns[label] = mean_over_seeds(runs, found)
        if columns[label].isna().any() or columns[label].empty:
            name = metric or primary_metric(runs[0])
            raise UserError(f"the runs of {label} do not have the same clients with the metric {name!r}")
        seeds[label] = sorted(map(replicate_of, runs))
    first = next(iter(columns), "")
    for label, column in columns.items():
        if seeds[label] != seeds[first] or not column.index.equals(columns[first].index):
            raise UserError(
                f"{first} and {label} do not have the same seeds and clients and cannot be paired"
            )
    return pd.DataFrame(columns)


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
    reading: Reading = LAST,
) -> pd.DataFrame:
    """Returns `client_table`, its rows labelled by `client_labels`, with the rows `Avg` and `SD` below it.

    `Avg` is the mean over clients, `SD` their spread, both within a run and then averaged over runs: the spread of
    clients whose seeds are averaged first is smaller and belongs to no client.

    Args:
        ddof: 1 divides by n - 1 (PersFL's tables), 0 by n.
    """
    table = client_table(groups, predictor, metric=metric, population=population, reading=reading)
    below = {}
    for label, runs in groups.items():
        found = [
            client_scores(run, predictor, metric=metric, population=population, reading=reading)
            for run in runs
        ]
        below[label] = {
            "Avg": over_replicates(runs, [float(one.mean()) for one in found]).mean,
            "SD": over_replicates(runs, [float(one.std(ddof=ddof)) for one in found]).mean,
        }
    labelled = table.set_axis(pd.Index(client_labels(table.index), dtype=object))
    return pd.concat([labelled, pd.DataFrame(below)]).rename_axis("client")


class ChangeHistogram(NamedTuple):
    """A histogram of changes: bin i is `[edges[i], edges[i+1])`, the last closed; `below` clients are below 0."""

    edges: np.ndarray
    counts: np.ndarray
    below: int


def changes(
    method: Sequence[Run], baseline: Sequence[Run], metric: str | None = None, *, reading: Reading = LAST
) -> pd.Series:
    """Returns by client the headline value of `method` minus that of `baseline`, on the same clients and seeds."""
    table = client_table({"method": method, "baseline": baseline}, metric=metric, reading=reading)
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
    rounds = mean_over_seeds(runs, found)
    together = len(runs) if same_clients(runs) else 1
    return pd.DataFrame({"round": rounds, "runs": together})
