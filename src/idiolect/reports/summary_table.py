"""The summary of a report, one row for each method: as numbers, plain text, Markdown, LaTeX and CSV.

The global accuracy is that of the predictor `global` on the server's test set.  The personalised accuracy is that of
the method's headline predictor on the test split of every client, at the end of the run if measured then, else in the
last round.  Runs that are judged by another metric than accuracy have that metric in its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from idiolect.records import Run
from idiolect.reports.gain_over_local import gains_over_local
from idiolect.reports.judged_metric import ABSENT, ACCURACY, JudgedMetric, judged_by
from idiolect.reports.run_groups import group_runs
from idiolect.reports.text_tables import to_csv, to_latex, to_markdown
from idiolect.statistics import client_scores, headline, primary_metric, server_curve, worst_tenth

__all__ = [
    "WORDS",
    "best_cells",
    "csv_table",
    "final_global",
    "human_bytes",
    "latex_table",
    "markdown_table",
    "notes_of",
    "plain_rows",
    "summarise",
]

COSTS = ("bytes_down", "bytes_up", "seconds")
WORDS = ("Method", "Predictor")
EXPLANATION = (
    "Global: the global model on the server's test set. "
    "Personalised: the named predictor, mean over all clients. "
    "SD: over clients, n - 1. Worst tenth: mean of the worst ceil(10 %) of the clients. "
    "Down and up: bytes per round, all clients together. Seconds: the whole run, evaluation included."
)


def summarise(runs: Iterable[Run]) -> pd.DataFrame:
    """Returns one row per method, with means over seeds, and SDs over seeds where there are several.

    Columns: `method` (its label), `seeds` (how many), `predictor` (the headline), `clients`, then, each as
    the mean over seeds: `global_accuracy` (server's test set), `personal_accuracy` (mean over all clients),
    `sd_clients` (SD over clients, n - 1), `worst_tenth` (mean of the worst ceil(10 %) of the clients),
    `bytes_down` and `bytes_up` per round, `seconds` of the whole run; and `global_accuracy_sd_seeds`,
    `personal_accuracy_sd_seeds`, `worst_tenth_sd_seeds` (n - 1, NaN for one seed).  Accuracies lie in [0,
    1]; what was not measured is NaN.  Columns of runs that are judged by another metric are named after it, as
    `global_rmse`; a client for whom it is not defined counts nowhere.

    Raises:
        UserError: the runs are judged by different metrics.
    """
    runs = list(runs)
    metric = judged_by(runs)
    return pd.DataFrame([_summary_row(label, group, metric) for label, group in group_runs(runs).items()])


def _values(metric: JudgedMetric) -> dict[str, str]:
    """Returns the columns of values that have a best one, by their titles."""
    return {
        metric.heading("Global"): f"global_{metric.name}",
        metric.heading("Personalised"): f"personal_{metric.name}",
        metric.heading("Worst tenth"): "worst_tenth",
    }


def _summary_row(label: str, group: list[Run], metric: JudgedMetric) -> dict[str, Any]:
    seeds = pd.DataFrame([_numbers(run, metric) for run in group])
    shared, personal, worst = _values(metric).values()
    line: dict[str, Any] = {
        "method": label,
        "seeds": len(group),
        "predictor": group[0].manifest.get("headline", "global"),
        "clients": int(seeds["clients"].max()),
    }
    averaged = (shared, personal, "sd_clients", worst, *COSTS)
    line.update({name: seeds[name].mean(skipna=False) for name in averaged})
    for name in (shared, personal, worst):
        line[f"{name}_sd_seeds"] = seeds[name].std(ddof=1, skipna=False)
    return line


def _numbers(run: Run, metric: JudgedMetric) -> dict[str, float]:
    clients = client_scores(run)
    return {
        "clients": len(clients),
        f"global_{metric.name}": final_global(run),
        f"personal_{metric.name}": float(clients.mean()),
        "sd_clients": float(clients.std(ddof=1)),
        "worst_tenth": worst_tenth(clients, metric.higher_is_better),
        "bytes_down": float(run.rounds["bytes_down"].mean()),
        "bytes_up": float(run.rounds["bytes_up"].mean()),
        "seconds": float(run.manifest.get("seconds", run.rounds["seconds"].sum())),
    }


def final_global(run: Run) -> float:
    """Returns the global model's value in the last round that measured it, or NaN."""
    points = server_curve(run)
    return float(points.iloc[-1]) if len(points) else math.nan


def plain_rows(summary: pd.DataFrame, metric: JudgedMetric = ACCURACY) -> list[list[str]]:
    """Returns the table as strings, the header first, with a hyphen for what was not measured.

    Args:
        metric: what the runs are judged by.
    """
    several = bool((summary["seeds"] > 1).any())
    lines = [_row_cells(line, several, metric) for line in summary.to_dict("records")]
    return [list(lines[0]), *(list(cells.values()) for cells in lines)]


def markdown_table(summary: pd.DataFrame, notes: Iterable[str] = (), metric: JudgedMetric = ACCURACY) -> str:
    """Returns a Markdown table with the best value of each column in bold, an explanation and notes."""
    rows = plain_rows(summary, metric)
    columns = "".join("l" if title in WORDS else "r" for title in rows[0])
    table = to_markdown(rows, columns, bold=best_cells(summary, rows[0], metric))
    seeds = " ±: SD over seeds, n - 1." if (summary["seeds"] > 1).any() else ""
    return "\n".join([table, EXPLANATION + seeds, *(f"\n- {note}" for note in notes)]) + "\n"


def latex_table(summary: pd.DataFrame, metric: JudgedMetric = ACCURACY) -> str:
    """Returns a LaTeX `tabular` with the rules of booktabs and the best value of each column in bold."""
    rows = plain_rows(summary, metric)
    columns = "".join("l" if title in WORDS else "r" for title in rows[0])
    return to_latex(rows, columns, bold=best_cells(summary, rows[0], metric))


def csv_table(summary: pd.DataFrame) -> str:
    """Returns the unrounded numbers as CSV: shares in [0, 1], bytes, seconds; empty where not measured."""
    return to_csv(summary)


def best_cells(
    summary: pd.DataFrame, header: list[str], metric: JudgedMetric = ACCURACY
) -> list[tuple[int, int]]:
    """Returns row (0 is the header) and column of the best value of each column, as shown; none with one method."""
    found = []
    best_of = max if metric.higher_is_better else min
    for title, name in _values(metric).items():
        shown = [metric.text(value) for value in summary[name]]
        best = best_of((float(text) for text in shown if text != ABSENT), default=math.nan)
        for row, text in enumerate(shown, 1):
            if len(shown) > 1 and text != ABSENT and float(text) == best:
                found.append((row, header.index(title)))
    return found


def notes_of(runs: Iterable[Run]) -> list[str]:
    """Returns the notes of all manifests, each once, and what methods gain over training alone.

    A note that not all methods share names its methods.
    """
    runs = list(runs)
    groups = group_runs(runs)
    owners: dict[str, list[str]] = {}
    for label, group in groups.items():
        written = [note for run in group for note in (*run.manifest.get("notes", []), *_undefined(run))]
        for note in dict.fromkeys(written):
            owners.setdefault(note, []).append(label)
    everyone = len(groups)
    notes = [note if len(who) == everyone else f"{', '.join(who)}: {note}" for note, who in owners.items()]
    return [*notes, *gains_over_local(runs)]


def _undefined(run: Run) -> list[str]:
    """Returns a note if the metric that the run is judged by is not defined for some clients."""
    rows, metric = run.rows, judged_by([run])
    own = (rows["metric"] == primary_metric(run)) & (rows["predictor"] == headline(run))
    last = rows[own & (rows["population"] == "all") & (rows["split"] == "test")]
    last = last[last["round"] == last["round"].max()]
    missing = last[last["value"].isna()]["client"].nunique()
    if not missing:
        return []
    return [
        f"{metric.title} is not defined for {missing} of {last['client'].nunique()} clients, whom means leave out"
    ]


def human_bytes(count: float) -> str:
    """Returns a number of bytes as text, in units of 1000.

    >>> human_bytes(0), human_bytes(999), human_bytes(1500), human_bytes(2.5e6)
    ('0 B', '999 B', '1.5 kB', '2.5 MB')
    """
    if math.isnan(count):
        return ABSENT
    if round(count) < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if round(count, 1) < 1000:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} TB"


def _row_cells(line: dict[Any, Any], several: bool, metric: JudgedMetric) -> dict[str, str]:
    (shared, personal, worst), names = _values(metric), list(_values(metric).values())
    cells = {
        "Method": str(line["method"]),
        shared: _cell(line, names[0], metric),
        personal: _cell(line, names[1], metric),
        "Predictor": str(line["predictor"]),
        metric.heading("SD"): _cell(line, "sd_clients", metric),
        worst: _cell(line, names[2], metric),
        "Down": human_bytes(line["bytes_down"]),
        "Up": human_bytes(line["bytes_up"]),
        "Seconds": ABSENT if math.isnan(line["seconds"]) else f"{line['seconds']:.1f}",
    }
    return {**cells, "Seeds": str(line["seeds"])} if several else cells


def _cell(line: dict[Any, Any], name: str, metric: JudgedMetric) -> str:
    spread = line.get(f"{name}_sd_seeds", math.nan)
    after = "" if math.isnan(spread) or math.isnan(line[name]) else f" ± {metric.text(spread)}"
    return metric.text(line[name]) + after
