"""Calibration by method: of all samples together where they were counted, else of clients.

The error of a client with few test samples is mostly chance; see `statistics.calibration`.  Records with counts by bin
of confidence therefore show the errors of all samples together; older ones show those of clients, and say so.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.figures.charts import bars_figure, line_style
from idiolect.reports.figures.style import appearances, label_panel, legend_beside, make_panels, wrapped
from idiolect.reports.judged_metric import ACCURACY
from idiolect.reports.run_groups import group_runs, scenes_of
from idiolect.reports.text_tables import to_markdown
from idiolect.statistics import (
    LAST,
    Reading,
    calibration_bins,
    calibration_of,
    client_scores,
    few_samples,
    over_replicates,
    reliability,
)

__all__ = [
    "calibration_data",
    "calibration_figure",
    "calibration_markdown",
    "calibration_table",
    "reliability_data",
    "reliability_figure",
]

CALIBRATION_ERRORS = {"ece": "Expected calibration error", "mce": "Largest error of a bin"}
CAVEAT = "Calibration of clients, mean and SD over clients: with few test samples each, mostly chance"
PANELS = {
    "ece": "ECE of all samples",
    "if_calibrated": "What a calibrated model would show",
    "error": "Debiased error",
}
TITLES = {
    "samples": "Samples",
    "ece": "ECE %",
    "if_calibrated": "If calibrated %",
    "error": "Debiased error %",
    "client_ece": "Clients' ECE %",
    "client_if_calibrated": "Clients' if calibrated %",
}


def calibration_table(runs: Iterable[Run]) -> pd.DataFrame:
    """Returns the calibration of the methods whose runs all have counts by confidence, seeds taken together.

    Columns: `scene`, `method`, the fields of `statistics.Calibration`, and `note`, the sentence of `few_samples`; empty
    where no method has counts.
    """
    lines = []
    for scene, groups in scenes_of(runs).items():
        for label, group in groups.items():
            try:
                found = calibration_of(group)
            except UserError:
                continue
            lines.append({"scene": scene, "method": label, **found._asdict(), "note": few_samples(found)})
    return pd.DataFrame(lines)


def calibration_markdown(table: pd.DataFrame) -> str:
    """Returns one Markdown table per scene of `calibration_table`, what its columns mean, and notes of few samples."""
    parts = []
    for scene, here in table.groupby("scene", sort=False):
        rows = [["Method", *TITLES.values()]]
        for line in here.to_dict("records"):
            shares = [ACCURACY.text(line[name]) for name in list(TITLES)[1:]]
            rows.append([str(line["method"]), str(line["samples"]), *shares])
        parts.append(f"#### {scene}: calibration\n\n{to_markdown(rows)}")
    parts.append(
        "ECE: of all samples of all clients and seeds together. If calibrated: the ECE that a calibrated model with "
        "these confidences would show by chance. Debiased error: root of the squared error without that bias. "
        "Clients' ECE: mean over clients, weighted by their samples."
    )
    noted = table[table["note"] != ""].to_dict("records")
    before = [f"{line['scene']}, " if table["scene"].nunique() > 1 else "" for line in noted]
    notes = [f"- {where}{line['method']}: {line['note']}" for where, line in zip(before, noted, strict=True)]
    return "\n".join(parts) + "\n" + "".join(f"\n{note}" for note in notes) + "\n" * bool(notes)


def calibration_data(runs: Iterable[Run], reading: Reading = LAST) -> pd.DataFrame:
    """Returns calibration errors: `panel`, `line` (the method), `x`, `value`, `sd`, and `note` where they were counted.

    With counts by confidence, values are those of all samples together, and `sd` is NaN.  Without, they are means over
    clients with the SD (n - 1) over clients.

    Raises:
        UserError: calibration was not measured.
    """
    runs = list(runs)
    table = calibration_table(runs)
    if len(table):
        counted = [
            (panel, line["method"], "", line[name], np.nan, line["note"])
            for name, panel in PANELS.items()
            for line in table.to_dict("records")
        ]
        return pd.DataFrame(counted, columns=["panel", "line", "x", "value", "sd", "note"])
    lines = []
    for label, group in group_runs(runs).items():
        for metric, panel in CALIBRATION_ERRORS.items():
            seeds = [client_scores(run, metric=metric, reading=reading) for run in group]
            if all(len(values) for values in seeds):
                mean = over_replicates(group, [float(values.mean()) for values in seeds]).mean
                sd = over_replicates(group, [float(values.std(ddof=1)) for values in seeds]).mean
                lines.append((panel, label, "", mean, sd))
    if not lines:
        raise UserError("no run has measured calibration")
    return pd.DataFrame(lines, columns=["panel", "line", "x", "value", "sd"])


def calibration_figure(data: pd.DataFrame, methods: Iterable[str] = ()) -> Figure:
    """Draws bars; lower is better.  Errors of clients have one SD over clients and a caveat in the title."""
    if "note" not in data:
        return bars_figure(data, "", "Error", CAVEAT, lines=methods)
    note = "\nClients have few samples each: their own errors are mostly chance" if data["note"].any() else ""
    figure = bars_figure(data, "", "Error", f"Calibration of all samples together{note}", lines=methods)
    top = max(axes.get_ylim()[1] for axes in figure.axes)
    for axes in figure.axes:
        axes.set_ylim(0, top)  # panels are compared with each other
    return figure


def reliability_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Returns `line` (the method) and the columns of `statistics.reliability`, all clients and seeds together.

    Raises:
        UserError: no method has counts by confidence.
    """
    tables = []
    for label, group in group_runs(runs).items():
        try:
            tables.append(reliability(calibration_bins(group)).assign(line=label))
        except UserError:
            continue
    if not tables:
        raise UserError("no run has counts by confidence")
    data = pd.concat(tables, ignore_index=True)
    return data[["line", *(name for name in data if name != "line")]]


def reliability_figure(data: pd.DataFrame, methods: Iterable[str] = ()) -> Figure:
    """Draws the share of right predictions against mean confidence; on the diagonal both agree."""
    looks = appearances([*methods, *data["line"]])
    figure, (axes,) = make_panels(1)
    axes.plot([0, 100], [0, 100], color="#999999", linestyle=(0, (4, 4)), linewidth=1)
    for label, line in data.groupby("line", sort=False):
        axes.plot(
            100 * line["confidence"],
            100 * line["accuracy"],
            label=wrapped(str(label)),
            **line_style(looks[label]),
        )
        if data["line"].nunique() == 1:
            _interval(axes, line, looks[label].colour)
    axes.set(xlim=(0, 100), ylim=(0, 100))
    label_panel(axes, "Reliability of all samples together", "Confidence (%)", "Right (%)")
    legend_beside(figure, [line for line in axes.lines if not str(line.get_label()).startswith("_")])
    return figure


def _interval(axes: Axes, line: pd.DataFrame, colour: str) -> None:
    low, high = 100 * line["accuracy_low"], 100 * line["accuracy_high"]
    axes.fill_between(100 * line["confidence"], low, high, color=colour, alpha=0.13, linewidth=0)
