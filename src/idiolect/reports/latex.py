"""The summary as a LaTeX table, for a paper that loads booktabs."""

from __future__ import annotations

import pandas as pd

from idiolect.reports.table import WORDS, best_cells, plain_rows
from idiolect.reports.text_tables import to_latex

__all__ = ["latex_table"]


def latex_table(summary: pd.DataFrame) -> str:
    """A `tabular` with the rules of booktabs, the best accuracy of each column in bold."""
    rows = plain_rows(summary)
    columns = "".join("l" if title in WORDS else "r" for title in rows[0])
    return to_latex(rows, columns, bold=best_cells(summary, rows[0]))
