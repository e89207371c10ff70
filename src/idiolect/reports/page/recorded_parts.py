"""What only newer records hold, for the HTML page: calibration, confusions, costs of clients, newcomers.

Every part is None where no run of the scene has recorded it, and its section is then left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.comparison import newcomer_rows
from idiolect.reports.run_groups import comparable_seconds
from idiolect.reports.scene_verdict import SceneVerdict
from idiolect.statistics import (
    Groups,
    calibration_bins,
    calibration_of,
    confusion_matrix,
    few_samples,
    newcomer_table,
    on_one_machine,
    over_replicates,
    pareto,
    reliability,
)

__all__ = ["confusion_part", "newcomers_part", "reliability_part", "spending_part"]

MOST_CLASSES = 30  # of a confusion matrix
SPENT = ("steps", "flops", "bytes_down", "bytes_up")
COSTS = {
    "bytes": "Bytes down and up",
    "bytes_down": "Bytes down",
    "bytes_up": "Bytes up",
    "steps_client": "Steps a client",
    "flops": "Floating-point operations",
}
MACHINE_COSTS = {
    "seconds": "Seconds",
    "memory": "Peak memory",
    "gpu": "Peak GPU memory",
    "joules": "Energy (J)",
}  # comparable on one machine alone


def reliability_part(groups: Groups) -> list[dict[str, Any] | None] | None:
    """Returns by method the calibration of all samples together, bins of a reliability diagram, and a sentence.

    The sentence says where the calibration error of single clients is mostly chance; see `statistics.few_samples`.
    """
    return _by_method(groups, _reliability)


def _reliability(runs: Sequence[Run]) -> dict[str, Any]:
    found, bins = calibration_of(runs), reliability(calibration_bins(runs))
    kept = ("count", "confidence", "accuracy", "accuracy_low", "accuracy_high")
    return {
        "samples": found.samples,
        "ece": found.ece,
        "if_calibrated": found.if_calibrated,
        "error": found.error,
        "client_ece": found.client_ece,
        "client_if_calibrated": found.client_if_calibrated,
        "few": few_samples(found),
        "bins": {name: bins[name].tolist() for name in kept},
    }


def confusion_part(groups: Groups) -> list[dict[str, Any] | None] | None:
    """Returns by method `classes` and `counts` of true by predicted class, all clients and seeds together.

    Data with more than `MOST_CLASSES` classes are left out.
    """
    return _by_method(groups, _confusion)


def _confusion(runs: Sequence[Run]) -> dict[str, Any]:
    matrices = [confusion_matrix(run) for run in runs]
    if len(matrices[0]) > MOST_CLASSES:
        raise UserError(f"a confusion matrix of {len(matrices[0])} classes is too large for the page")
    total = sum(matrix.to_numpy() for matrix in matrices)
    return {"classes": [str(name) for name in matrices[0].index], "counts": np.asarray(total).tolist()}


def _by_method(
    groups: Groups, make: Callable[[Sequence[Run]], dict[str, Any]]
) -> list[dict[str, Any] | None] | None:
    found: list[dict[str, Any] | None] = []
    for runs in groups.values():
        try:
            found.append(make(runs))
        except UserError:
            found.append(None)
    return found if any(found) else None


def spending_part(groups: Groups, verdict: SceneVerdict) -> dict[str, Any] | None:
    """Returns `methods`, what a client and a run of each spent, and `fronts`, the best trade-offs against a cost.

    Of a method: `steps`, `flops`, `bytes_down` and `bytes_up` of a client, as mean (`_client`) and largest (`_most`)
    over clients and as sum, then `seconds`, `memory`, `gpu` and `joules` of the run, all as means over seeds; NaN
    where not recorded.  What depends on the machine (`seconds`, `memory`, `gpu`, `joules`) has a front only where all
    runs come from one, which `one_machine` says; else `seconds` are NaN.
    """
    lines = [_spent(runs) for runs in groups.values()]
    runs = [run for group in groups.values() for run in group]
    if not any(len(run.costs) for run in runs):
        return None
    if not comparable_seconds(runs):
        lines = [{**line, "seconds": np.nan} for line in lines]
    one_machine = on_one_machine(runs)
    return {
        "methods": lines,
        "fronts": _fronts(list(groups), lines, verdict, {**COSTS, **(MACHINE_COSTS if one_machine else {})}),
        "one_machine": one_machine,
    }


def _fronts(
    labels: list[str], lines: list[dict[str, float]], verdict: SceneVerdict, axes: dict[str, str]
) -> list[dict[str, Any]]:
    """Returns `key`, `title` and `front` (places of the best trade-offs) of every cost that two methods or more have.

    Costs that do not differ between methods are left out.
    """
    sign = 1 if verdict.metric.higher_is_better else -1
    values = dict(zip(verdict.estimates["method"], sign * verdict.estimates["value"], strict=True))
    fronts = []
    for key, title in axes.items():
        points = {
            label: (line[key], values[label])
            for label, line in zip(labels, lines, strict=True)
            if label in values and pd.notna(line[key])
        }
        if len({cost for cost, _ in points.values()}) > 1:
            places = [labels.index(label) for label in pareto(points)]
            fronts.append({"key": key, "title": title, "front": places})
    return fronts


def _spent(runs: Sequence[Run]) -> dict[str, float]:
    each = [_spent_by_run(run) for run in runs]
    return {key: over_replicates(runs, [one[key] for one in each]).mean for key in each[0]}


def _spent_by_run(run: Run) -> dict[str, float]:
    own = run.costs[run.costs["population"] == "all"] if len(run.costs) else run.costs
    line: dict[str, float] = {}
    for name in SPENT:
        values = pd.to_numeric(own[name]).astype(float)
        known = bool(len(values)) and bool(values.notna().all())
        line[f"{name}_client"] = float(values.mean()) if known else np.nan
        line[f"{name}_most"] = float(values.max()) if known else np.nan
        line[name] = float(values.sum()) if known else np.nan
    facts = run.manifest.get("resources") or {}
    recorded = {"memory": "peak_memory_bytes", "gpu": "peak_gpu_bytes", "joules": "energy_joules"}
    line |= {key: _number(facts.get(name)) for key, name in recorded.items()}
    line["seconds"] = _number(run.manifest.get("seconds", run.rounds["seconds"].sum()))
    line["bytes"] = line["bytes_down"] + line["bytes_up"]
    return line


def _number(value: Any) -> float:
    return np.nan if value is None else float(value)


def newcomers_part(groups: Groups, verdict: SceneVerdict) -> dict[str, Any] | None:
    """Returns the table of clients that joined after training: `rows` as tables write it, and unrounded `numbers`."""
    table = newcomer_table(groups)
    if table.empty:
        return None
    numbers = [list(table.columns), *table.to_numpy().tolist()]
    return {"rows": newcomer_rows(table, verdict.metric), "numbers": numbers}
