"""Values along the segment between the shared and the private model (SuPerFed, figures 2 and 4)."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports.figures.charts import line_style
from idiolect.reports.figures.paper_style import sizes
from idiolect.reports.figures.style import INK, appearances, label_panel, legend_beside, make_panels, wrapped
from idiolect.reports.judged_metric import ACCURACY, JudgedMetric, judged_by
from idiolect.reports.run_groups import group_runs
from idiolect.statistics import alpha_profile, pick, server_curve

__all__ = ["profile_data", "profile_figure"]

SHIFT = 0.012  # x distance between two methods, so that their error bars do not overlap


def profile_data(runs: Iterable[Run]) -> pd.DataFrame:
    """Returns `panel`, `line` (the method), `alpha`, `value`, `sd` and `server`, of shares in percent.

    `value` is the mean over clients and `sd` their SD within a seed (n - 1), both averaged over seeds.
    `server` is the value of the global model on the server's test set.  Methods without mixtures are left out.

    Raises:
        UserError: no run has mixtures.
    """
    tables, runs = [], list(runs)
    factor = judged_by(runs).factor
    for label, group in group_runs(runs).items():
        try:
            found = alpha_profile(group)
        except UserError:
            continue
        shared = pd.Series([server_curve(run).iloc[-1] for run in group if len(server_curve(run))])
        tables.append(
            pd.DataFrame(
                {
                    "panel": "Final mixtures",
                    "line": label,
                    "alpha": found["alpha"],
                    "value": factor * found["mean"],
                    "sd": factor * found["sd_clients_ddof1"],
                    "server": factor * shared.mean(),
                }
            )
        )
    if not tables:
        raise UserError("no run has predictors mix(0.0) to mix(1.0), such as SuPerFed's")
    return pd.concat(tables, ignore_index=True)


def profile_figure(
    points: pd.DataFrame,
    title: str = "",
    *,
    columns: int = 4,
    lines: Iterable[str] = (),
    metric: JudgedMetric = ACCURACY,
) -> Figure:
    """Draws one panel for each `panel`, with error bars of one SD over clients.

    A note names the best coefficient of each line with the word oracle, because it is chosen on test data.

    Args:
        points: columns `panel`, `line`, `alpha`, `value`, `sd`, and `server` where there is a global model.
        lines: all lines of the report in order, so that each has the same colour in every figure.
        metric: what the mixtures are judged by.
    """
    panels, looks = list(dict.fromkeys(points["panel"])), appearances([*lines, *points["line"]])
    figure, grid = make_panels(len(panels), title, columns=columns, size=(3.9, 3.3), share=True)
    for axes, panel in zip(grid, panels, strict=True):
        told = []
        here = list(points[points["panel"] == panel].groupby("line", sort=False))
        for place, (label, line) in enumerate(here):
            style = {**line_style(looks[label]), "markersize": 4 * sizes().scale}
            at = line["alpha"] + SHIFT * (place - (len(here) - 1) / 2)
            axes.errorbar(at, line["value"], yerr=line["sd"], capsize=2, label=wrapped(str(label)), **style)
            told.append(_told(str(label), line, len(here) > 1, metric))
        _write(axes, told)
        label_panel(axes, str(panel), "Mixing coefficient", metric.axis)
    legend_beside(figure, [bars for axes in grid for bars in axes.containers])
    return figure


def _told(label: str, line: pd.DataFrame, several: bool, metric: JudgedMetric) -> str:
    values = line.set_index("alpha")["value"]
    best = pick(values, values, split="test", higher_is_better=metric.higher_is_better)
    text = f"best {metric.scaled_text(best.value)} at {best.which:g} ({best.rule})"
    if "server" in line and pd.notna(line["server"].iloc[0]):
        text += f", global {metric.scaled_text(line['server'].iloc[0])}"
    return f"{label}: {text}" if several else text


def _write(axes: Axes, told: list[str]) -> None:
    axes.text(
        0.03,
        0.03,
        "\n".join(told),
        transform=axes.transAxes,
        fontsize=sizes().small - 1,
        va="bottom",
        color=INK,
        wrap=True,
    )
