"""What a notebook shows of runs: the table of a report and the learning curves, as one piece of HTML."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from idiolect.records import Run
from idiolect.reports.figures.learning_curves import curves_data, curves_figure
from idiolect.reports.figures.style import image
from idiolect.reports.judged_metric import judged_by
from idiolect.reports.summary_table import plain_rows, summarise

__all__ = ["runs_html", "table_html"]


def runs_html(title: str, runs: Sequence[Run]) -> str:
    """Returns a title, one row per method, and the curves of the global and the personalised models.

    Runs whose curves have a single point are shown without a picture.
    """
    metric = judged_by(runs)
    header, *rows = plain_rows(summarise(runs), metric)
    shown = f"<p><b>{escape(title)}</b></p>{table_html(header, rows)}"
    curves = curves_data(runs)
    if (curves.loc[curves["moment"] == "round"].groupby(["method", "panel"]).size() > 1).any():
        picture = base64.b64encode(image(curves_figure(curves, metric), "png")).decode()
        shown += f'<img alt="Learning curves" style="max-width:100%" src="data:image/png;base64,{picture}">'
    return shown


def table_html(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table of plain words."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
