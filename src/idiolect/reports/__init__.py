"""Tables and figures, made from records alone."""

from __future__ import annotations

from idiolect.reports.clients import clients_data, clients_figure
from idiolect.reports.comparison import intervals_data, pairs_data
from idiolect.reports.critical_difference import critical_difference_figure
from idiolect.reports.curves import curves_data, curves_figure
from idiolect.reports.partition_figure import partition_figure
from idiolect.reports.scatter import scatter_data, scatter_figure
from idiolect.reports.summary import summarise
from idiolect.reports.table import csv_table, markdown_table, notes_of, plain_rows
from idiolect.reports.write import write_report

__all__ = [
    "clients_data",
    "clients_figure",
    "critical_difference_figure",
    "csv_table",
    "curves_data",
    "curves_figure",
    "intervals_data",
    "markdown_table",
    "notes_of",
    "pairs_data",
    "partition_figure",
    "plain_rows",
    "scatter_data",
    "scatter_figure",
    "summarise",
    "write_report",
]
