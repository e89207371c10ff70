"""Tables and figures, made from records alone."""

from __future__ import annotations

from idiolect.reports.clients import clients_data, clients_figure
from idiolect.reports.comparison import intervals_data, pairs_data
from idiolect.reports.critical_difference import critical_difference_figure
from idiolect.reports.curves import curves_data, curves_figure
from idiolect.reports.gather import gather
from idiolect.reports.latex import latex_table
from idiolect.reports.page_data import page_data
from idiolect.reports.partition_figure import partition_figure
from idiolect.reports.scatter import scatter_data, scatter_figure
from idiolect.reports.summary import summarise
from idiolect.reports.table import csv_table, markdown_table, notes_of, plain_rows
from idiolect.reports.write import write_report
from idiolect.reports.write_page import page_html, write_page

__all__ = [
    "clients_data",
    "clients_figure",
    "critical_difference_figure",
    "csv_table",
    "curves_data",
    "curves_figure",
    "gather",
    "intervals_data",
    "latex_table",
    "markdown_table",
    "notes_of",
    "page_data",
    "page_html",
    "pairs_data",
    "partition_figure",
    "plain_rows",
    "scatter_data",
    "scatter_figure",
    "summarise",
    "write_page",
    "write_report",
]
