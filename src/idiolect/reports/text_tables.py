r"""Writes tables as Markdown, LaTeX and CSV text, with one table of escapes for each format.

A table is a list of rows of strings, the header first:

>>> rows = [["Method", "Accuracy %"], ["fedavg", "61.0 ± 0.4"], ["map | mm_1", "72.5 ± 0.2"]]
>>> print(to_markdown(rows, bold=[(2, 1)]), end="")
| Method | Accuracy % |
| :--- | ---: |
| fedavg | 61.0 ± 0.4 |
| map \| mm_1 | **72.5 ± 0.2** |
>>> print(to_latex(rows, bold=[(2, 1)]), end="")
% needs \usepackage{booktabs} and \usepackage[T1]{fontenc}
\begin{tabular}{lr}
\toprule
Method & Accuracy \% \\
\midrule
fedavg & 61.0 $\pm$ 0.4 \\
map \textbar{} mm\_1 & \textbf{72.5 $\pm$ 0.2} \\
\bottomrule
\end{tabular}
>>> print(to_csv([["method", "accuracy"], ["fedavg", 0.61], ["map, mm", None]]), end="")
method,accuracy
fedavg,0.61
"map, mm",

Callers pass plain text: these functions escape every cell and the caption.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Sequence
from typing import Any

import pandas as pd

__all__ = ["latex_text", "markdown_text", "to_csv", "to_latex", "to_markdown", "without_html"]

MARKDOWN_ESCAPES = {"|": r"\|", "\n": " "}
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet's formula begins with
MARKDOWN_RULES = {"l": ":---", "r": "---:", "-": "---"}
GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi "
    "pi rho sigma tau upsilon phi chi psi omega"
)
LATEX_ESCAPES = {
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
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "\n": " ",
    **{letter: rf"$\{name}$" for letter, name in zip("αβγδεζηθικλμνξπρστυφχψω", GREEK.split(), strict=True)},
}
BOOKTABS = (r"\toprule", r"\midrule", r"\bottomrule")
PLAIN_RULES = (r"\hline", r"\hline", r"\hline")

Rows = Sequence[Sequence[str]]
Place = tuple[int, int]  # row and column of a cell, counted from 0 with the header as row 0


def markdown_text(text: str) -> str:
    r"""Returns text that a cell of a Markdown table can hold.

    >>> print(markdown_text("a | b"))
    a \| b
    """
    return "".join(MARKDOWN_ESCAPES.get(sign, sign) for sign in text)


def without_html(document: str) -> str:
    """Returns a Markdown document in which no name that a user chose is read as HTML.

    >>> print(without_html("| <b>map</b> | p < 0.05 |"))
    | &lt;b>map&lt;/b> | p < 0.05 |
    """
    return re.sub("<(?=[A-Za-z/!?])", "&lt;", document)


def latex_text(text: str) -> str:
    r"""Returns text that LaTeX prints as it is; a double quote needs the T1 font encoding.

    >>> print(latex_text("a_b & 5 % {c} \\"))
    a\_b \& 5 \% \{c\} \textbackslash{}
    >>> print(latex_text("aβ ω"))
    a$\beta$ $\omega$
    """
    return "".join(LATEX_ESCAPES.get(sign, sign) for sign in text)


def to_markdown(rows: Rows, columns: str = "", *, bold: Collection[Place] = ()) -> str:
    """Returns a Markdown table that ends with a newline.

    Args:
        rows: the header and the rows below it.
        columns: one letter for each column: ``l`` left, ``r`` right, ``-`` as the viewer decides; without it, the
            first column is left-aligned and all others are right-aligned.
        bold: cells in bold print.
    """
    cells = [[markdown_text(cell) for cell in row] for row in rows]
    for row, column in bold:
        cells[row][column] = f"**{cells[row][column]}**"
    header, *body = cells
    rule = [MARKDOWN_RULES[letter] for letter in columns or _first_left(header)]
    return "".join("| " + " | ".join(row) + " |\n" for row in [header, rule, *body])


def to_latex(
    rows: Rows,
    columns: str = "",
    *,
    bold: Collection[Place] = (),
    rules_before: Collection[int] = (),
    booktabs: bool = True,
    caption: str = "",
) -> str:
    r"""Returns a LaTeX ``tabular`` that ends with a newline, inside a ``table`` where there is a caption.

    Args:
        rows: the header and the rows below it.
        columns: one letter for each column: ``l`` left or ``r`` right; without it, the first column is left-aligned and
            all others are right-aligned.
        bold: cells in bold print.
        rules_before: rows, counted from 0 with the header as row 0, above which a rule is drawn besides the one
            below the header.
        booktabs: whether to draw the rules of booktabs; otherwise the rules are ``\hline``.
        caption: text above the table.
    """
    top, middle, bottom = BOOKTABS if booktabs else PLAIN_RULES
    cells = [[latex_text(cell) for cell in row] for row in rows]
    for row, column in bold:
        cells[row][column] = rf"\textbf{{{cells[row][column]}}}"
    header, *body = [" & ".join(row) + r" \\" for row in cells]
    lines = [rf"\begin{{tabular}}{{{columns or _first_left(rows[0])}}}", top, header, middle]
    for place, line in enumerate(body, 1):
        lines += [middle, line] if place in rules_before else [line]
    lines += [bottom, r"\end{tabular}"]
    if caption:
        lines = [r"\begin{table}", rf"\caption{{{latex_text(caption)}}}", *lines, r"\end{table}"]
    return "\n".join([*_packages(lines, booktabs), *lines, ""])


def csv_text(cell: Any) -> Any:
    """Returns a cell that no spreadsheet takes for a formula: a text that begins like one gets an apostrophe in front.

    >>> csv_text("=1+1"), csv_text("-0.5"), csv_text("- fedavg"), csv_text(-0.5)
    ("'=1+1", '-0.5', "'- fedavg", -0.5)
    """
    if not isinstance(cell, str) or not cell.startswith(FORMULA) or len(cell) == 1:
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def to_csv(table: pd.DataFrame | Sequence[Sequence[object]]) -> str:
    """Returns CSV text with unrounded numbers and Unix line ends, in which no text is a spreadsheet's formula.

    Args:
        table: a data frame, whose index is left out and whose missing values become empty cells, or the header and
            the rows below it, where None becomes an empty cell.
    """
    if isinstance(table, pd.DataFrame):
        texts = {
            name: values.map(csv_text)
            for name, values in table.items()
            if not pd.api.types.is_numeric_dtype(values.dtype)
        }
        safe = table.assign(**texts).rename(columns=csv_text)
        return str(safe.to_csv(index=False, lineterminator="\n"))
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows([[csv_text(cell) for cell in row] for row in table])
    return target.getvalue()


def _first_left(header: Sequence[str]) -> str:
    return "l" + "r" * (len(header) - 1)


def _packages(lines: Sequence[str], booktabs: bool) -> list[str]:
    r"""Returns a comment that names the packages a document must load; ``\textquotedbl`` exists in T1 alone."""
    if booktabs:
        return [r"% needs \usepackage{booktabs} and \usepackage[T1]{fontenc}"]
    if any(r"\textquotedbl" in line for line in lines):
        return [r"% needs \usepackage[T1]{fontenc}"]
    return []
