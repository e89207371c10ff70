"""What disturbances cost: every method in a clean scene and in the same scene under disturbances."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pandas as pd

from idiolect import statistics
from idiolect.records import Run, scene_settings
from idiolect.reports.diverged_methods import divergence_text
from idiolect.reports.judged_metric import ABSENT, ACCURACY, JudgedMetric
from idiolect.reports.run_groups import scenes_of, settings_of_run
from idiolect.reports.text_tables import to_csv, to_latex, to_markdown
from idiolect.statistics import LAST, Reading, Replicate, client_scores, over_replicates, replicate_of

__all__ = [
    "DISTURBANCE_COLUMNS",
    "disturbance_cells",
    "disturbances_csv",
    "disturbances_data",
    "disturbances_latex",
    "disturbances_markdown",
    "disturbances_note",
]

DISTURBANCE_COLUMNS = [
    "scene",
    "under",
    "method",
    "clean",
    "disturbed",
    "difference",
    "low",
    "high",
    "p",
    "p_holm",
    "hit",
    "spared",
    "diverged",
    "clients",
    "seeds",
    "design",
]


class Twins(NamedTuple):
    """Runs of one method that differ in nothing but seeds and disturbances, on the replicates that both have."""

    scene: str
    under: str
    method: str
    clean: list[Run]
    disturbed: list[Run]


def disturbances_data(runs: Iterable[Run], reading: Reading = LAST) -> pd.DataFrame:
    """Returns the headline's final mean of every method that ran in a clean scene and under disturbances.

    Columns: `scene` (the clean one), `under`, `method`, `clean`, `disturbed`, `difference` (disturbed minus clean,
    paired by replicate and client) with its 95 % interval `low` and `high`, `p`, `p_holm` (corrected over the methods
    of a scene and disturbance), `hit` and `spared` (the difference among disturbed clients, and among the others; NaN
    where no client is singled out), `diverged` (`clean`, `disturbed` or both, where one of the seeds diverged and there
    is no number), `clients`, `seeds`, `design`.  It is empty where no two runs are twins.
    """
    lines = [_compared(twins, reading) for twins in _twins(list(runs))]
    table = pd.DataFrame(lines, columns=DISTURBANCE_COLUMNS)
    for _, here in table.groupby(["scene", "under"], sort=False):
        table.loc[here.index, "p_holm"] = statistics.holm(here["p"].to_numpy(float))
    return table


def _twins(runs: Sequence[Run]) -> list[Twins]:
    clean = [run for run in runs if not _under(run)]
    if not clean or len(clean) == len(runs):
        return []
    found = []
    disturbed: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if _under(run):
            disturbed.setdefault((_under(run), _without_disturbances(run)), []).append(run)
    for scene, groups in scenes_of(clean).items():
        for label, group in groups.items():
            for (under, rest), others in disturbed.items():
                if rest == _without_disturbances(group[0]):
                    both = {replicate_of(run) for run in group} & {replicate_of(run) for run in others}
                    pair = [[run for run in side if replicate_of(run) in both] for side in (group, others)]
                    if both:
                        found.append(Twins(scene, under, label, pair[0], pair[1]))
    return sorted(found, key=lambda twins: _order(twins, found))


def _order(twins: Twins, found: Sequence[Twins]) -> tuple[int, int]:
    """Returns the place of a line: by scene and disturbance, in order of appearance."""
    scenes, unders = (list(dict.fromkeys(getattr(one, name) for one in found)) for name in ("scene", "under"))
    return scenes.index(twins.scene), unders.index(twins.under)


def _under(run: Run) -> str:
    return " and ".join(scene_settings(run.manifest)["under"])


def _without_disturbances(run: Run) -> str:
    """Returns a key that is equal for runs that differ in nothing but seeds and disturbances."""
    settings = settings_of_run(run)
    return json.dumps({name: value for name, value in settings.items() if name != "under"}, sort_keys=True)


def _compared(twins: Twins, reading: Reading) -> dict[str, Any]:
    groups = {"disturbed": twins.disturbed, "clean": twins.clean}
    lost = [name for name in ("clean", "disturbed") if divergence_text(groups[name])]
    told = {
        "scene": twins.scene,
        "under": twins.under,
        "method": twins.method,
        "diverged": " and ".join(lost),
    }
    if lost:
        ended = {name: _mean(group, reading) for name, group in groups.items() if name not in lost}
        return ended | told | {"seeds": len(twins.clean)}
    pairs = statistics.paired_comparisons(groups, baseline="clean", reading=reading)
    found: dict[str, Any] = pairs.iloc[0].to_dict() if len(pairs) else {}
    means = {name: _mean(group, reading) for name, group in groups.items()}
    return found | means | _by_clients(twins, reading) | told


def _mean(group: Sequence[Run], reading: Reading) -> float:
    values = [float(client_scores(run, reading=reading).mean()) for run in group]
    return over_replicates(group, values).mean


def _by_clients(twins: Twins, reading: Reading) -> dict[str, float]:
    """Returns the mean difference among disturbed clients, and among the others, over seeds."""
    clean = {replicate_of(run): run for run in twins.clean}
    means: dict[str, dict[Replicate, float]] = {"hit": {}, "spared": {}}
    for run in twins.disturbed:
        change = client_scores(run, reading=reading) - client_scores(
            clean[replicate_of(run)], reading=reading
        )
        named = {client for clients in run.manifest.get("disturbed", {}).values() for client in clients}
        for name, here in (("hit", change.index.isin(named)), ("spared", ~change.index.isin(named))):
            if named and here.any():
                means[name][replicate_of(run)] = float(change[here].mean())
    return {name: over_replicates(list(each), list(each.values())).mean for name, each in means.items()}


def disturbances_csv(table: pd.DataFrame) -> str:
    """Returns the unrounded numbers as CSV."""
    return to_csv(table)


def disturbances_markdown(table: pd.DataFrame, metric: JudgedMetric = ACCURACY) -> str:
    """Returns one Markdown table per scene and disturbance, and an explanation."""
    parts = [
        f"#### {scene}: under {under}\n\n{to_markdown(disturbance_cells(here, metric))}"
        for (scene, under), here in table.groupby(["scene", "under"], sort=False)
    ]
    return "\n".join([*parts, disturbances_note(table), ""])


def disturbances_latex(table: pd.DataFrame, metric: JudgedMetric = ACCURACY) -> str:
    """Returns one LaTeX `tabular` per scene and disturbance."""
    return "\n".join(
        f"% {scene}: under {under}\n{to_latex(disturbance_cells(here, metric))}"
        for (scene, under), here in table.groupby(["scene", "under"], sort=False)
    )


def disturbance_cells(table: pd.DataFrame, metric: JudgedMetric) -> list[list[str]]:
    """Returns the table as text; columns of single clients only where some are singled out."""
    singled = bool(table[["hit", "spared"]].notna().any(axis=None))
    header = ["Method", metric.heading("Clean"), metric.heading("Disturbed"), "Difference", "95 % interval"]
    rows = [header + (["Disturbed clients", "Other clients"] if singled else [])]
    for line in table.to_dict("records"):
        cells = [str(line["method"])]
        cells += [
            "diverged" if side in line["diverged"] else metric.text(line[side])
            for side in ("clean", "disturbed")
        ]
        cells += [_signed(line["difference"], metric), _interval(line["low"], line["high"], metric)]
        rows.append(cells + ([_signed(line[name], metric) for name in ("hit", "spared")] if singled else []))
    return rows


def _signed(value: float, metric: JudgedMetric) -> str:
    text = metric.text(value)
    return text if text == ABSENT or value < 0 else f"+{text}"


def _interval(low: float, high: float, metric: JudgedMetric) -> str:
    return ABSENT if math.isnan(low) else f"{_signed(low, metric)} to {_signed(high, metric)}"


def disturbances_note(table: pd.DataFrame) -> str:
    """Returns what the columns of the tables mean."""
    note = (
        "Difference: disturbed minus clean, paired by seed and client; the interval counts what varies between seeds "
        "and is absent with fewer than three of them. "
    )
    if table[["hit", "spared"]].notna().any(axis=None):
        note += (
            "Disturbed and other clients: the difference among those whose data or uploads were changed, and among "
            "the rest. "
        )
    return f"{note}Seeds: {', '.join(sorted({str(int(n)) for n in table['seeds'].dropna()}))}."
