"""The data of the HTML page, as one JSON document made from records alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from idiolect import statistics
from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.figures.clients import teachers_data
from idiolect.reports.figures.degradation_between_rounds import degradation_data
from idiolect.reports.figures.learning_curves import targets_data
from idiolect.reports.figures.mixing_profile import profile_data
from idiolect.reports.figures.ranks import ranks_data
from idiolect.reports.figures.style import Appearance, appearance
from idiolect.reports.judged_metric import JudgedMetric, judged_by, metric_title
from idiolect.reports.page.metric_numbers import costs_part, measured_part
from idiolect.reports.run_groups import SCENE, SEEDS, flat, group_runs
from idiolect.reports.summary_table import notes_of
from idiolect.statistics import Groups, headline, higher_is_better, is_share

__all__ = ["as_json", "extras_part", "page_data", "ranks_part"]

DIGITS = 6  # significant digits of numbers in the document
FIRST = ("accuracy", "top5", "macro_f1", "loss", "ece", "mce")  # after the one that the runs are judged by
MOST_CLIENTS = 200  # clients shown of one partition
PAGE_EXTRAS: dict[str, Callable[[list[Run]], pd.DataFrame]] = {
    "targets": targets_data,
    "degradation": degradation_data,
    "profile": lambda runs: profile_data(runs).rename(columns={"alpha": "x"}),
    "teachers": teachers_data,
}


def page_data(runs: Iterable[Run], passed_over: Iterable[str] = ()) -> dict[str, Any]:
    """Returns the document that the page shows, with one entry for each of its sections.

    Args:
        passed_over: sentences about folders that the report leaves out.

    Raises:
        UserError: there is no run, or a method has a seed twice.
    """
    runs = list(runs)
    groups = {label: [measured_rows(run) for run in group] for label, group in group_runs(runs).items()}
    judged = judged_by(runs)
    metrics = metrics_data(groups, judged)
    return {
        "methods": methods_data(groups),
        "metrics": metrics,
        "measured": {line["name"]: measured_part(groups, line["name"], line["higher"]) for line in metrics},
        "costs": costs_part(groups),
        "judged": {
            "word": judged.word,
            "title": judged.title,
            "higher": judged.higher_is_better,
            "percent": judged.is_share,
        },
        "extras": extras_part(runs, list(groups)),
        "ranks": ranks_part(runs),
        "partitions": partitions_part(groups),
        "settings": settings_part(groups),
        "runs": runs_part(groups),
        "notes": notes_of(runs),
        "passed_over": list(passed_over),
    }


def as_json(document: Any) -> str:
    """Returns JSON that is safe inside a script element, without `<`, `>` or `&`; NaN and infinity become null."""
    text = json.dumps(_plain(document), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


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


def measured_rows(run: Run) -> Run:
    """Returns the run with only the rows that the page reads: all clients' test splits and the server's test set."""
    rows = run.rows
    wanted = (rows["population"] == "all") & rows["split"].isin(["test", "server"])
    return run._replace(rows=rows[wanted & rows["predictor"].isin(["global", headline(run)])])


def methods_data(groups: Groups) -> list[dict[str, Any]]:
    """Returns one entry per method: `label`, `predictor`, `seeds`, the scene, colour, dashes and marker."""
    return [
        {
            "label": label,
            "predictor": headline(runs[0]),
            "seeds": [int(run.manifest["seed"]) for run in runs],
            **_look(appearance(label)),
            **{key: str(runs[0].manifest.get(key, "")) for key in (*SCENE, "method")},
        }
        for label, runs in groups.items()
    ]


def metrics_data(groups: Groups, judged: JudgedMetric) -> list[dict[str, Any]]:
    """Returns the measured metrics that have a direction: `name`, `title`, `higher` (is better), `percent`.

    Args:
        judged: what the runs are judged by, which comes first.
    """
    found: dict[str, dict[str, Any]] = {}
    for run in (run for runs in groups.values() for run in runs):
        for name in run.rows["metric"].unique():
            try:
                better = higher_is_better(run, name)
            except UserError:
                continue
            line = {
                "name": name,
                "title": metric_title(name),
                "higher": better,
                "percent": is_share(run, name),
            }
            found.setdefault(name, line)
    order = {name: place for place, name in enumerate(dict.fromkeys([judged.name, *FIRST]))}
    return sorted(found.values(), key=lambda line: (order.get(line["name"], len(order)), line["name"]))


def _look(look: Appearance) -> dict[str, Any]:
    dash = [] if isinstance(look.line, str) else list(look.line[1])
    return {"colour": look.number, "dash": dash, "marker": look.marker}


def partitions_part(groups: Groups) -> list[dict[str, Any]]:
    """Returns every different partition: `title`, number of `clients`, `counts` of the first clients by class."""
    found: dict[str, dict[str, Any]] = {}
    for run in (run for runs in groups.values() for run in runs):
        counts = run.manifest.get("class_counts")
        if counts and np.any(counts):
            names = [str(run.manifest[key]) for key in ("dataset", "partition") if key in run.manifest]
            line = {"title": ", ".join([*names, f"seed {run.manifest['seed']}"]), "clients": len(counts)}
            found.setdefault(json.dumps(counts), {**line, "counts": counts[:MOST_CLIENTS]})
    return list(found.values())


def settings_part(groups: Groups) -> dict[str, Any]:
    """Returns the settings `common` to all methods, and those `differing`, with one value for each method."""
    specs = [flat(runs[0].manifest.get("spec", {})) for runs in groups.values()]
    keys = list(dict.fromkeys(key for spec in specs for key in spec if key not in SEEDS))
    values = {key: [_text(spec[key]) if key in spec else "" for spec in specs] for key in keys}
    return {
        "common": {key: found[0] for key, found in values.items() if len(set(found)) == 1},
        "differing": {key: found for key, found in values.items() if len(set(found)) > 1},
    }


def runs_part(groups: Groups) -> list[dict[str, Any]]:
    """Returns every run: place of its `method`, `seed`, `name`, and its `manifest` without the class counts."""
    return [
        {
            "method": place,
            "seed": int(run.manifest["seed"]),
            "name": str(run.manifest["name"]),
            "manifest": {key: value for key, value in run.manifest.items() if key != "class_counts"},
        }
        for place, runs in enumerate(groups.values())
        for run in runs
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def extras_part(runs: list[Run], labels: list[str]) -> dict[str, Any]:
    """Returns the figures that only some runs allow, by name, as a list of panels with `title` and `lines` by method.

    A line has `x`, `value` and `sd`, shares in percent, and `server` where a mixture has a global model.
    """
    found = {}
    for name, make in PAGE_EXTRAS.items():
        try:
            data = make(runs)
        except UserError:
            continue
        if len(data):
            found[name] = [_panel(title, here, labels) for title, here in data.groupby("panel", sort=False)]
    return found


def _panel(title: Any, here: pd.DataFrame, labels: list[str]) -> dict[str, Any]:
    kept = [name for name in ("x", "value", "sd", "server") if name in here]
    by_method = {label: line[kept].to_dict("list") for label, line in here.groupby("line", sort=False)}
    return {"title": str(title), "lines": [by_method.get(label) for label in labels]}


def ranks_part(runs: list[Run]) -> dict[str, Any] | None:
    """Returns `methods` and their mean `ranks`, the best first, the critical `distance` and Friedman's `p`."""
    try:
        scores = ranks_data(runs)
        found = statistics.rank_methods(scores, higher_is_better=judged_by(runs).higher_is_better)
    except UserError:
        return None
    return {
        "methods": list(found.ranks.index),
        "ranks": found.ranks.tolist(),
        "distance": found.distance,
        "p": found.p_value,
        "level": found.level,
        "scenes": found.scenarios,
    }
