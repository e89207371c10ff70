"""The picture of a figure: every kind has its drawing, made from the points alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure as Picture

from idiolect.records import write_atomically
from idiolect.reports import (
    bars_figure,
    change_figure,
    heat_figure,
    image,
    lines_figure,
    profile_figure,
    scatter_figure,
    settings_figure,
    zigzag_figure,
)
from idiolect.reproduction.entry import Entry
from idiolect.reproduction.papers import Figure

__all__ = ["DRAWINGS", "points_of_tables", "write_picture"]


def write_picture(
    points: pd.DataFrame, figure: Figure, folder: Path, quick: bool, formats: Sequence[str] = ("png",)
) -> None:
    """Writes ``<id>.png``, or whichever formats are named."""
    title = f"{figure.id} (quick)" if quick else figure.id
    for kind in formats:
        write_atomically(
            folder / f"{figure.id}.{kind}", image(DRAWINGS[figure.kind](points, figure, title), kind)
        )


def points_of_tables(entries: Sequence[Entry], tables: Sequence[str]) -> pd.DataFrame:
    """A row for every method: `method`, `aggregation`, `personalisation` in [0, 1]; none where nothing was measured."""
    found = {(one.row, one.column): one.value for one in entries}
    lines = []
    for row in dict.fromkeys(one.row for one in entries):
        shared, own = (found.get((row, id)) for id in tables)
        if own is not None:
            lines.append((row, float("nan") if shared is None else shared / 100, own / 100))
    table = pd.DataFrame(lines, columns=["method", "aggregation", "personalisation"])
    return table.assign(aggregation_sd_seeds=float("nan"), personalisation_sd_seeds=float("nan"))


def _over_rounds(points: pd.DataFrame, figure: Figure, title: str) -> Picture:
    """Means over seeds, SD over clients as a band; each metric has panels of its own."""
    kept = [name for name in ("value", "sd") if name in points]
    means = points.groupby(["panel", "metric", "line", "round"], sort=False)[kept].mean().reset_index()
    if means["metric"].nunique() > 1:
        means["panel"] = means["panel"] + ", " + means["metric"]
    mark = None if figure.mark is None else figure.mark * float(means["round"].max())
    return lines_figure(means.rename(columns={"round": "x"}), "Round", title, mark=mark)


def _profile(points: pd.DataFrame, figure: Figure, title: str) -> Picture:
    """A panel for every combination of what varies, a line for every mixing scheme."""
    varied = [*figure.options, *figure.settings]
    text = [", ".join(f"{key}={line[key]}" for key in varied) for line in points[varied].to_dict("records")]
    named = points.assign(panel=text if varied else points["panel"], line=points["group"])
    means = named.groupby(["panel", "line", "alpha"], sort=False)[["value", "sd", "server"]].mean()
    columns = len(figure.options[varied[-1]] if varied[-1] in figure.options else figure.settings[varied[-1]])
    return profile_figure(means.reset_index(), title, columns=columns)


def _zigzag(points: pd.DataFrame, figure: Figure, title: str) -> Picture:
    return zigzag_figure(points.assign(panel=points["panel"] + ": " + points["line"]), title)


def _grid(points: pd.DataFrame, figure: Figure, title: str) -> Picture:
    """A panel for every line and scenario; in square brackets the best of the compared methods, which do not vary."""
    column, row = figure.options
    own, compared = points[points[row].notna()], points[points[row].isna()]
    means = compared.groupby(["panel", "group", "line"], sort=False)["value"].mean()
    best = means.groupby(["panel", "group"]).max().to_dict()
    panels = [
        f"{panel}, {group}" + (f" [{best[panel, group]:.1f}]" if (panel, group) in best else "")
        for panel, group in own[["panel", "group"]].to_numpy()
    ]
    return heat_figure(own.assign(panel=panels, row=own[row], column=own[column]), row, column, title)


def _settings(points: pd.DataFrame, figure: Figure, title: str) -> Picture:
    """Means over scenarios and seeds; colours tell the first option apart, shapes the others."""
    first, *others = figure.options
    means = (
        points.groupby([first, *others, "group"], sort=False)["value"].mean().unstack("group").reset_index()
    )
    shapes = [", ".join(f"{key}={line[key]}" for key in others) for line in means.to_dict("records")]
    shared, own = (line.label for line in figure.lines)
    return settings_figure(
        pd.DataFrame(
            {
                "colour": [f"{first}={value}" for value in means[first]],
                "shape": shapes,
                "aggregation": means[shared],
                "personalisation": means[own],
            }
        ),
        title,
    )


def _clients(points: pd.DataFrame, figure: Figure, title: str) -> Picture:
    means = points.groupby(["panel", "line", "client"], sort=False)["value"].mean().reset_index()
    metric = str(points["metric"].iloc[0]).capitalize()
    return bars_figure(means.rename(columns={"client": "x"}), "Client", metric, title)


def _users(points: pd.DataFrame, figure: Figure, title: str) -> Picture:
    """A panel for every client; the first option runs along x, the second tells lines apart."""
    x, line = figure.options
    means = points.groupby(["client", line, x], sort=False)["value"].mean().reset_index()
    named = means.assign(
        panel=[f"User {client}" for client in means["client"]],
        line=[f"{line}={value}" for value in means[line]],
        x=means[x],
    )
    return lines_figure(named, x, title, y_label="Test accuracy (%)")


def _change(points: pd.DataFrame, figure: Figure, title: str) -> Picture:
    return change_figure(points.assign(panel=points["panel"] + ": " + points["line"]), title)


def _table(points: pd.DataFrame, figure: Figure, title: str) -> Picture:
    return scatter_figure(points)


DRAWINGS: dict[str, Callable[[pd.DataFrame, Figure, str], Picture]] = {
    "curves": _over_rounds,
    "spread": _over_rounds,
    "degradation": _over_rounds,
    "zigzag": _zigzag,
    "profile": _profile,
    "grid": _grid,
    "settings": _settings,
    "clients": _clients,
    "users": _users,
    "change": _change,
    "table": _table,
}
