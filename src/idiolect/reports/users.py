"""Every user under every method, with the mean and the SD over users below (as PersFL's tables)."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from idiolect.records import Run
from idiolect.reports.grouping import group_runs
from idiolect.reports.latex import escaped
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
    return str(table.rename_axis("user").to_csv(lineterminator="\n"))


def users_markdown(table: pd.DataFrame) -> str:
    """Percentages with one digit, under what they are."""
    header, *rows = _cells(table)
    rule = [":---", *["---:"] * (len(header) - 1)]
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in [header, rule, *rows]
    ]
    return "\n".join([*lines, "", NOTE]) + "\n"


def users_latex(table: pd.DataFrame) -> str:
    """A `tabular` with the rules of booktabs, one before the mean."""
    header, *rows = [" & ".join(map(escaped, row)) + r" \\" for row in _cells(table)]
    return "\n".join(
        [
            "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}",
            rf"\begin{{tabular}}{{l{'r' * table.shape[1]}}}",
            r"\toprule",
            header,
            r"\midrule",
            *rows[:-2],
            r"\midrule",
            *rows[-2:],
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _cells(table: pd.DataFrame) -> list[list[str]]:
    rows = [[str(user), *(f"{100 * value:.1f}" for value in line)] for user, line in table.iterrows()]
    return [["User", *map(str, table.columns)], *rows]
