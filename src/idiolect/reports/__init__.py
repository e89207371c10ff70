"""Tables and figures, made from records alone."""

from __future__ import annotations

from idiolect.reports.bars import bars_figure
from idiolect.reports.calibration_figure import calibration_data, calibration_figure
from idiolect.reports.change_figure import change_data, change_figure
from idiolect.reports.clients import clients_data, clients_figure
from idiolect.reports.comparison import intervals_data, pairs_data
from idiolect.reports.critical_difference import critical_difference_figure
from idiolect.reports.curves import curves_data, curves_figure
from idiolect.reports.degradation import degradation_data, degradation_figure
from idiolect.reports.gather import gather
from idiolect.reports.heat_map import clients_heat_data, heat_figure
from idiolect.reports.latex import latex_table
from idiolect.reports.lines import lines_figure
from idiolect.reports.page_data import page_data
from idiolect.reports.partition_figure import partition_figure
from idiolect.reports.profile import profile_data, profile_figure
from idiolect.reports.ranks import ranks_data, ranks_figure
from idiolect.reports.scatter import scatter_data, scatter_figure
from idiolect.reports.settings_scatter import settings_figure
from idiolect.reports.special import special_pictures
from idiolect.reports.summary import summarise
from idiolect.reports.sweep_figure import sweep_figure
from idiolect.reports.table import csv_table, markdown_table, notes_of, plain_rows
from idiolect.reports.targets import targets_data, targets_figure
from idiolect.reports.teachers import teachers_data, teachers_figure
from idiolect.reports.write import refuse_unknown_formats, write_report
from idiolect.reports.write_page import page_html, write_page
from idiolect.reports.zigzag import zigzag_data, zigzag_figure

__all__ = [
    "bars_figure",
    "calibration_data",
    "calibration_figure",
    "change_data",
    "change_figure",
    "clients_data",
    "clients_figure",
    "clients_heat_data",
    "critical_difference_figure",
    "csv_table",
    "curves_data",
    "curves_figure",
    "degradation_data",
    "degradation_figure",
    "gather",
    "heat_figure",
    "intervals_data",
    "latex_table",
    "lines_figure",
    "markdown_table",
    "notes_of",
    "page_data",
    "page_html",
    "pairs_data",
    "partition_figure",
    "plain_rows",
    "profile_data",
    "profile_figure",
    "ranks_data",
    "ranks_figure",
    "refuse_unknown_formats",
    "scatter_data",
    "scatter_figure",
    "settings_figure",
    "special_pictures",
    "summarise",
    "sweep_figure",
    "targets_data",
    "targets_figure",
    "teachers_data",
    "teachers_figure",
    "write_page",
    "write_report",
    "zigzag_data",
    "zigzag_figure",
]
