"""Tables that compare methods client by client: users, confidence intervals, paired tests."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from idiolect import statistics
from idiolect.records import Run
from idiolect.reports.judged_metric import ACCURACY, JudgedMetric
from idiolect.reports.run_groups import group_runs
from idiolect.reports.text_tables import to_csv, to_latex, to_markdown
from idiolect.statistics import user_table

__all__ = ["intervals_data", "pairs_data", "users_csv", "users_data", "users_latex", "users_markdown"]


def intervals_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Returns 95 % intervals of the headline's final value, over clients and, with several seeds, over seeds.

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
    """Returns paired tests of every two methods with clients as the unit; see `statistics.paired_tests`.

    Raises:
        UserError: there is one method, or two differ in seeds or clients.
    """
    return statistics.paired_tests(statistics.client_table(group_runs(runs)))


def users_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Returns the headline's final value of every user under every method, as PersFL's tables do.

    Values are means over seeds, shares in [0, 1]; the rows `Avg` and `SD` (n - 1) are over users.

    Raises:
        UserError: two methods differ in seeds or clients.
    """
    return user_table(group_runs(runs))


def users_csv(table: pd.DataFrame) -> str:
    """Returns the unrounded numbers as CSV."""
    return to_csv(table.rename_axis("user").reset_index())


def users_markdown(table: pd.DataFrame, metric: JudgedMetric = ACCURACY) -> str:
    """Returns a Markdown table, of percentages with one digit where values are shares, and a note below it."""
    unit = " in percent" if metric.is_share else ""
    note = f"{metric.title}{unit}, mean over seeds; SD over users of those means, n - 1."
    return f"{to_markdown(_user_cells(table, metric))}\n{note}\n"


def users_latex(table: pd.DataFrame, metric: JudgedMetric = ACCURACY) -> str:
    """Returns a LaTeX `tabular` with a rule above the mean."""
    rows = _user_cells(table, metric)
    return to_latex(rows, rules_before=[len(rows) - 2])


def _user_cells(table: pd.DataFrame, metric: JudgedMetric) -> list[list[str]]:
    rows = [[str(user), *(metric.text(value) for value in line)] for user, line in table.iterrows()]
    return [["User", *map(str, table.columns)], *rows]
