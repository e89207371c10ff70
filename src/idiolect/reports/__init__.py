"""Tables, figures and the HTML page of a report, made from records alone."""

from __future__ import annotations

from idiolect.reports.comparison import certainty_of, intervals_data, newcomers_data, pairs_data, users_data
from idiolect.reports.disturbances import disturbance_cells, disturbances_data, disturbances_note
from idiolect.reports.figures.calibration_errors import (
    calibration_data,
    calibration_figure,
    calibration_table,
    reliability_data,
    reliability_figure,
)
from idiolect.reports.figures.charts import bars_figure, heat_figure, lines_figure
from idiolect.reports.figures.clients import (
    change_data,
    change_figure,
    clients_data,
    clients_figure,
    clients_heat_data,
    teachers_data,
    teachers_figure,
)
from idiolect.reports.figures.degradation_between_rounds import (
    before_after_data,
    before_after_figure,
    degradation_data,
    degradation_figure,
)
from idiolect.reports.figures.features import features_figure
from idiolect.reports.figures.learning_curves import curves_data, curves_figure, targets_data, targets_figure
from idiolect.reports.figures.mixing_profile import profile_data, profile_figure
from idiolect.reports.figures.partition import partition_figure
from idiolect.reports.figures.ranks import critical_difference_figure, ranks_data, ranks_figure
from idiolect.reports.figures.style import IMAGE_FORMATS, image
from idiolect.reports.figures.sweep import sweep_figure
from idiolect.reports.figures.tradeoff import scatter_data, scatter_figure, settings_figure
from idiolect.reports.figures.tuning_budget import budget_figure
from idiolect.reports.judged_metric import ACCURACY, JudgedMetric, judged_by
from idiolect.reports.notebook_html import runs_html, table_html
from idiolect.reports.page.page_data import page_data
from idiolect.reports.page.page_file import page_html, write_page
from idiolect.reports.report_files import (
    refuse_unknown_formats,
    refuse_unknown_style,
    special_pictures,
    write_report,
)
from idiolect.reports.run_discovery import gather
from idiolect.reports.scene_verdict import best_first
from idiolect.reports.summary_table import (
    NO_SECONDS,
    by_scene,
    csv_table,
    lacks_seconds,
    latex_table,
    markdown_table,
    marks_of,
    notes_of,
    plain_rows,
    summarise,
)
from idiolect.reports.text_tables import to_csv, to_latex, to_markdown, without_html

__all__ = [
    "ACCURACY",
    "IMAGE_FORMATS",
    "NO_SECONDS",
    "JudgedMetric",
    "bars_figure",
    "before_after_data",
    "before_after_figure",
    "best_first",
    "budget_figure",
    "by_scene",
    "calibration_data",
    "calibration_figure",
    "calibration_table",
    "certainty_of",
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
    "disturbance_cells",
    "disturbances_data",
    "disturbances_note",
    "features_figure",
    "gather",
    "heat_figure",
    "image",
    "intervals_data",
    "judged_by",
    "lacks_seconds",
    "latex_table",
    "lines_figure",
    "markdown_table",
    "marks_of",
    "newcomers_data",
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
    "refuse_unknown_style",
    "reliability_data",
    "reliability_figure",
    "runs_html",
    "scatter_data",
    "scatter_figure",
    "settings_figure",
    "special_pictures",
    "summarise",
    "sweep_figure",
    "table_html",
    "targets_data",
    "targets_figure",
    "teachers_data",
    "teachers_figure",
    "to_csv",
    "to_latex",
    "to_markdown",
    "users_data",
    "without_html",
    "write_page",
    "write_report",
]
