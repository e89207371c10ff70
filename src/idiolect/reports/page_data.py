"""Everything the page shows, as one JSON document made from records alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from idiolect.records import Run
from idiolect.reports.grouping import group_runs
from idiolect.reports.page_extras import extras_part
from idiolect.reports.page_methods import measured_rows, methods_data, metrics_data
from idiolect.reports.page_pairs import pairs_part
from idiolect.reports.page_provenance import partitions_part, runs_part, settings_part
from idiolect.reports.page_rounds import bytes_part, curves_part
from idiolect.reports.page_scores import clients_part, costs_part, leaderboard_part, spread_part
from idiolect.reports.ranks import ranks_part
from idiolect.reports.table import notes_of
from idiolect.statistics import Groups, client_scores

__all__ = ["as_json", "page_data"]

DIGITS = 6  # significant ones in the document


def page_data(runs: Iterable[Run], passed_over: Iterable[str] = ()) -> dict[str, Any]:
    """The document: `methods`, `metrics`, `measured` by metric, costs, extras, ranks, partitions, settings, runs,
    notes.

    Args:
        passed_over: sentences about folders that are not in the report.

    Raises:
        UserError: there is no run, or a method has a seed twice.
    """
    runs = list(runs)
    groups = {label: [measured_rows(run) for run in group] for label, group in group_runs(runs).items()}
    metrics = metrics_data(groups)
    return {
        "methods": methods_data(groups),
        "metrics": metrics,
        "measured": {line["name"]: _measured(groups, line["name"], line["higher"]) for line in metrics},
        "costs": costs_part(groups),
        "extras": extras_part(runs, list(groups)),
        "ranks": ranks_part(runs),
        "partitions": partitions_part(groups),
        "settings": settings_part(groups),
        "runs": runs_part(groups),
        "notes": notes_of(runs),
        "passed_over": list(passed_over),
    }


def as_json(document: Any) -> str:
    """JSON that is safe inside a script element: no `<`, `>` or `&`; what is not finite is null."""
    text = json.dumps(_plain(document), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _measured(groups: Groups, metric: str, higher: bool) -> dict[str, Any]:
    """One metric; its rows are set apart first, which makes every look at them cheap."""
    groups = {
        label: [run._replace(rows=run.rows[run.rows["metric"] == metric]) for run in runs]
        for label, runs in groups.items()
    }
    scores = [[client_scores(run, metric=metric) for run in runs] for runs in groups.values()]
    curves = curves_part(groups, metric)
    return {
        "leaderboard": leaderboard_part(scores, curves, higher),
        "curves": curves,
        "bytes": bytes_part(groups, curves),
        "clients": clients_part(scores),
        "spread": spread_part(scores, higher),
        "pairs": pairs_part(groups, scores),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
