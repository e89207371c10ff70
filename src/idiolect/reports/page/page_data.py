"""The data of the HTML page, as one JSON document made from records alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from idiolect.errors import UserError
from idiolect.records import Run, data_seed_of
from idiolect.records.tables import FRONT_SCHEMA
from idiolect.reports.disturbances import disturbance_cells, disturbances_data, disturbances_note
from idiolect.reports.figures.clients import teachers_data
from idiolect.reports.figures.degradation_between_rounds import degradation_data
from idiolect.reports.figures.learning_curves import targets_data
from idiolect.reports.figures.mixing_profile import profile_data
from idiolect.reports.figures.style import Appearance, appearance
from idiolect.reports.findings import overall_findings, scene_findings
from idiolect.reports.judged_metric import PAGE_DIGITS, JudgedMetric, judged_by, metric_title
from idiolect.reports.page.metric_numbers import costs_part, measured_part, rows_of
from idiolect.reports.page.recorded_parts import (
    confusion_part,
    newcomers_part,
    reliability_part,
    spending_part,
)
from idiolect.reports.run_groups import SCENE, SEEDS, flat, scenes_of
from idiolect.reports.scene_matrix import SceneMatrix, matrix_rows, matrix_words, scene_matrix
from idiolect.reports.scene_verdict import SceneVerdict, scene_verdict
from idiolect.reports.summary_table import idle_note, notes_of
from idiolect.statistics import LAST, Groups, Reading, headline, higher_is_better, is_share

__all__ = ["as_json", "extras_part", "page_data"]

FIRST = ("accuracy", "top5", "macro_f1", "loss", "ece", "mce")  # after the one that the runs are judged by
MOST_CLIENTS = 200  # clients shown of one partition
MOST_CELLS = 6000  # numbers of all partitions of a scene
MOST_COMPARED = 16  # with more methods, only the metric that the runs are judged by is compared
FRONT = FRONT_SCHEMA.names
WORDS = ("split", "predictor", "population", "metric")
PAGE_EXTRAS: dict[str, Callable[[list[Run]], pd.DataFrame]] = {
    "targets": targets_data,
    "degradation": degradation_data,
    "profile": lambda runs: profile_data(runs).rename(columns={"alpha": "x"}),
    "teachers": teachers_data,
}


def page_data(
    runs: Iterable[Run], passed_over: Iterable[str] = (), reading: Reading = LAST
) -> dict[str, Any]:
    """Returns the document that the page shows: `scenes`, each with one entry for each of its sections, and what
    concerns all of them: `matrix`, `ranks`, `disturbances`, `findings`, `reading`.

    Args:
        passed_over: sentences about folders that the report leaves out.
        reading: the rule by which final values are read.

    Raises:
        UserError: there is no run, or a method has a seed twice.
    """
    runs = list(runs)
    scenes: dict[str, Groups] = {
        name: {label: [measured_rows(run) for run in group] for label, group in groups.items()}
        for name, groups in scenes_of(runs).items()
    }
    verdicts = {name: scene_verdict(groups, reading) for name, groups in scenes.items()}
    scenes = {name: _best_first(groups, verdicts[name]) for name, groups in scenes.items()}
    matrix = scene_matrix(verdicts) if len(scenes) > 1 else None
    return {
        "scenes": [scene_part(name, groups, verdicts[name]) for name, groups in scenes.items()],
        "matrix": matrix_part(matrix) if matrix else None,
        "ranks": ranks_part(matrix) if matrix else None,
        "disturbances": disturbances_part(_every_run(scenes), reading) if matrix else None,
        "findings": overall_findings(verdicts, matrix) if matrix else [],
        "reading": reading.words,
        "passed_over": list(passed_over),
    }


def _best_first(groups: Groups, verdict: SceneVerdict) -> Groups:
    """Returns the methods in the order of their values, those without one last, in which every section shows them."""
    return {label: groups[label] for label in dict.fromkeys([*verdict.estimates["method"], *groups])}


def _every_run(scenes: Mapping[str, Groups]) -> list[Run]:
    return [run for groups in scenes.values() for runs in groups.values() for run in runs]


def scene_part(name: str, groups: Groups, verdict: SceneVerdict) -> dict[str, Any]:
    """Returns what the page shows of one scene.

    Args:
        groups: the methods of the scene with their runs.
        verdict: how the methods compare by what they are judged by.
    """
    runs = [run for group in groups.values() for run in group]
    judged = verdict.metric
    metrics = metrics_data(groups, judged)
    lines = [JudgedMetric(line["name"], line["higher"], line["percent"]) for line in metrics]
    return {
        "name": name,
        "methods": methods_data(groups),
        "metrics": metrics,
        "measured": {line.name: _metric_part(groups, line, verdict) for line in lines},
        "costs": (costs := costs_part(groups)),
        "idle_note": idle_note([line["never"] for line in costs], [line["left_out"] for line in costs]),
        "judged": {
            "name": judged.name,
            "word": judged.word,
            "title": judged.title,
            "higher": judged.higher_is_better,
            "percent": judged.is_share,
        },
        "findings": scene_findings(verdict, groups),
        "reliability": reliability_part(groups),
        "confusion": confusion_part(groups),
        "spending": spending_part(groups, verdict),
        "newcomers": newcomers_part(groups, verdict),
        "extras": extras_part(runs, list(groups)),
        "partitions": partitions_part(groups),
        "settings": settings_part(groups),
        "runs": runs_part(groups),
        "notes": notes_of(runs, verdict.reading),
    }


def _metric_part(groups: Groups, metric: JudgedMetric, judged: SceneVerdict) -> dict[str, Any]:
    """Returns the numbers of one metric; selects its rows first, which makes the rest fast."""
    groups = {label: [rows_of(run, metric.name) for run in runs] for label, runs in groups.items()}
    judges = metric.name == judged.metric.name
    found = (
        judged
        if judges
        else scene_verdict(groups, judged.reading, metric, paired=len(groups) <= MOST_COMPARED)
    )
    return {
        **measured_part(groups, found, judges=judges),
        "compared": judges or len(groups) <= MOST_COMPARED,
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
        return float(f"{value:.{PAGE_DIGITS}g}") if math.isfinite(value) else None
    return value


def measured_rows(run: Run) -> Run:
    """Returns the run with only the columns and rows that the page reads, words as categories, which compare fast."""
    rows = run.rows.drop(columns=[name for name in FRONT if name in run.rows])
    return run._replace(rows=rows.astype(dict.fromkeys(WORDS, "category")))


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
    """Returns every different partition: `title`, number of `clients`, `counts` of the first clients by class.

    Many clients, classes or seeds are cut off, so that all partitions of a scene have at most `MOST_CELLS` numbers.
    """
    found: dict[str, dict[str, Any]] = {}
    cells = 0
    for run in (run for runs in groups.values() for run in runs):
        counts = run.manifest.get("class_counts")
        if not counts or not np.any(counts) or cells >= MOST_CELLS or (key := json.dumps(counts)) in found:
            continue
        names = [str(run.manifest[key]) for key in ("dataset", "partition") if key in run.manifest]
        title = ", ".join([*names, f"data seed {data_seed_of(run.manifest)}"])
        shown = counts[: min(MOST_CLIENTS, max(1, (MOST_CELLS - cells) // len(counts[0])))]
        cells += len(shown) * len(counts[0])
        found[key] = {"title": title, "clients": len(counts), "counts": shown}
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
    """Returns every run: place of its `method`, `seed`, `name`, and its `manifest` without the class counts.

    Of a manifest only the first of its method is whole; the others hold what differs from it, and `lacks` names the
    keys that they do not have.
    """
    lines = []
    for place, runs in enumerate(groups.values()):
        whole: dict[str, Any] = {}
        for run in runs:
            manifest = {key: value for key, value in run.manifest.items() if key != "class_counts"}
            lines.append(
                {
                    "method": place,
                    "seed": int(run.manifest["seed"]),
                    "name": str(run.manifest["name"]),
                    "manifest": {k: v for k, v in manifest.items() if k not in whole or whole[k] != v},
                    "lacks": [key for key in whole if key not in manifest],
                }
            )
            whole = whole or manifest
    return lines


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


def matrix_part(found: SceneMatrix) -> dict[str, Any]:
    """Returns `methods` against `scenes`: `values`, `ranks` and `leading` by method and scene, `text` as in tables."""
    rows = matrix_rows(found)
    order = [row[0] for row in rows[1:]]
    return {
        "scenes": list(found.values.columns),
        "methods": [{"label": label, **_look(appearance(label))} for label in order],
        "header": rows[0],
        "text": [row[1:] for row in rows[1:]],
        "values": found.values.loc[order].to_numpy().tolist(),
        "ranks": found.ranks.loc[order].to_numpy().tolist(),
        "leading": found.leading.loc[order].to_numpy().tolist(),
        "words": matrix_words(found),
    }


def disturbances_part(runs: list[Run], reading: Reading) -> dict[str, Any] | None:
    """Returns what disturbances cost: `tables` by scene and disturbance, the unrounded `rows`, and a `note`."""
    try:
        table, metric = disturbances_data(runs, reading), judged_by(runs)
    except UserError:  # runs that are judged by different metrics
        return None
    if table.empty:
        return None
    tables = []
    for (scene, under), here in table.groupby(["scene", "under"], sort=False):
        header, *lines = disturbance_cells(here, metric)
        looks = [{"label": label, **_look(appearance(label))} for label in here["method"]]
        tables.append(
            {
                "scene": scene,
                "under": under,
                "header": header,
                "methods": looks,
                "text": [row[1:] for row in lines],
            }
        )
    rows = [list(table.columns), *table.to_numpy().tolist()]
    return {"tables": tables, "rows": rows, "note": disturbances_note(table)}


def ranks_part(found: SceneMatrix) -> dict[str, Any] | None:
    """Returns `methods` and their mean `ranks`, the best first, the critical `distance` and Friedman's `p`."""
    ranking = found.ranking
    if ranking is None:
        return None
    return {
        "methods": list(ranking.ranks.index),
        "looks": [_look(appearance(label)) for label in ranking.ranks.index],
        "ranks": ranking.ranks.tolist(),
        "distance": ranking.distance,
        "p": ranking.p_value,
        "level": ranking.level,
        "scenes": ranking.scenarios,
        "groups": [list(group) for group in ranking.groups],
    }
