"""What the page compares: the methods with their looks, the metrics, and which rows of a run count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.appearance import COLOURS, LINES, MARKERS
from idiolect.reports.grouping import SCENE
from idiolect.statistics import Groups, headline, higher_is_better

__all__ = ["measured_rows", "methods_data", "metrics_data"]

FIRST = ("accuracy", "top5", "macro_f1", "loss", "ece", "mce")
WORDS = {
    "accuracy": "Accuracy",
    "top5": "Top-5 accuracy",
    "macro_f1": "Macro F1",
    "loss": "Loss",
    "ece": "Calibration error (ECE)",
    "mce": "Largest calibration error (MCE)",
}


def measured_rows(run: Run) -> Run:
    """The run with the rows a page reads: all clients' test splits and the server's test set."""
    rows = run.rows
    wanted = (rows["population"] == "all") & rows["split"].isin(["test", "server"])
    return run._replace(rows=rows[wanted & rows["predictor"].isin(["global", headline(run)])])


def methods_data(groups: Groups) -> list[dict[str, Any]]:
    """One entry per method: `label`, `predictor`, `seeds`, the scene, and its look by places in the lists of looks."""
    return [
        {
            "label": label,
            "predictor": headline(runs[0]),
            "seeds": [int(run.manifest["seed"]) for run in runs],
            "colour": place % len(COLOURS),
            "dash": _dash(LINES[place % len(LINES)]),
            "marker": MARKERS[place % len(MARKERS)],
            **{key: str(runs[0].manifest.get(key, "")) for key in (*SCENE, "method")},
        }
        for place, (label, runs) in enumerate(groups.items())
    ]


def metrics_data(groups: Groups) -> list[dict[str, Any]]:
    """The metrics that were measured and have a direction: `name`, `title`, `higher` is better, `percent`."""
    found: dict[str, dict[str, Any]] = {}
    for run in (run for runs in groups.values() for run in runs):
        for name in run.rows["metric"].unique():
            described: Mapping[str, Any] = run.manifest.get("metrics", {}).get(name, {})
            try:
                better = higher_is_better(run, name)
            except UserError:
                continue
            bounded = described.get("high", 1 if name == "accuracy" else None) == 1
            line = {"name": name, "title": WORDS.get(name, name), "higher": better, "percent": bounded}
            found.setdefault(name, line)
    order = {name: place for place, name in enumerate(FIRST)}
    return sorted(found.values(), key=lambda line: (order.get(line["name"], len(order)), line["name"]))


def _dash(line: str | tuple[int, tuple[float, ...]]) -> list[float]:
    return [] if isinstance(line, str) else list(line[1])
