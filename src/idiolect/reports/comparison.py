"""How sure a comparison is: intervals of each method, and paired tests of every two."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from idiolect import statistics
from idiolect.records import Run
from idiolect.reports.grouping import group_runs

__all__ = ["intervals_data", "pairs_data"]


def intervals_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Percentile intervals (95 %) of the final headline accuracy, over clients and, with several seeds, over seeds.

    Raises:
        UserError: a method's seeds differ in clients.
    """
    groups = group_runs(runs)
    several = {label: group for label, group in groups.items() if len(group) > 1}
    found = [statistics.intervals(groups, over="clients")]
    if several:
        found.append(statistics.intervals(several, over="seeds"))
    return pd.concat(found, ignore_index=True)


def pairs_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Paired tests of every two methods with clients as the unit; see `paired_tests`.

    Raises:
        UserError: there is one method, or two differ in seeds or clients.
    """
    return statistics.paired_tests(statistics.client_table(group_runs(runs)))
