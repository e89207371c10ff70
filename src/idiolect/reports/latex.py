"""The summary as a LaTeX table, for a paper that loads booktabs."""

from __future__ import annotations

import pandas as pd

from idiolect.reports.table import WORDS, best_cells, plain_rows

__all__ = ["escaped", "latex_table"]

SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "\n": " ",
}


def latex_table(summary: pd.DataFrame) -> str:
    """A `tabular` with the rules of booktabs, the best accuracy of each column in bold."""
    header, *rows = plain_rows(summary)
    cells = [[escaped(cell) for cell in row] for row in rows]
    for row, column in best_cells(summary, header):
        cells[row][column] = rf"\textbf{{{cells[row][column]}}}"
    columns = "".join("l" if title in WORDS else "r" for title in header)
    lines = [" & ".join(line) + r" \\" for line in [[escaped(title) for title in header], *cells]]
    return "\n".join(
        [
            "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def escaped(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> print(escaped("a_b & 5 % {c} \\"))
    a\_b \& 5 \% \{c\} \textbackslash{}
    """
    return "".join(SIGNS.get(sign, sign) for sign in text)
