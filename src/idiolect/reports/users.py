"""Every user under every method, with the mean and the SD over users below (as PersFL's tables)."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from idiolect.records import Run
from idiolect.reports.grouping import group_runs
from idiolect.reports.text_tables import to_csv, to_latex, to_markdown
from idiolect.statistics import user_table

__all__ = ["users_csv", "users_data", "users_latex", "users_markdown"]

NOTE = "Accuracy in percent, mean over seeds; SD over users of those means, n - 1."


def users_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Users against methods, then `Avg` and `SD` (n - 1): final headline accuracies in [0, 1], mean over seeds.

    Raises:
        UserError: two methods differ in seeds or clients.
    """
    return user_table(group_runs(runs))


def users_csv(table: pd.DataFrame) -> str:
    """The unrounded numbers."""
    return to_csv(table.rename_axis("user").reset_index())


def users_markdown(table: pd.DataFrame) -> str:
    """Percentages with one digit, under what they are."""
    return f"{to_markdown(_cells(table))}\n{NOTE}\n"


def users_latex(table: pd.DataFrame) -> str:
    """A `tabular` with the rules of booktabs, one before the mean."""
    rows = _cells(table)
    return to_latex(rows, rules_before=[len(rows) - 2])


def _cells(table: pd.DataFrame) -> list[list[str]]:
    rows = [[str(user), *(f"{100 * value:.1f}" for value in line)] for user, line in table.iterrows()]
    return [["User", *map(str, table.columns)], *rows]
