"""The pictures of figures: each kind of figure has a drawing function, which needs the points alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure as Picture

from idiolect.records import write_atomically
from idiolect.reports import (
    bars_figure,
    before_after_figure,
    change_figure,
    features_figure,
    heat_figure,
    image,
    lines_figure,
    profile_figure,
    scatter_figure,
    settings_figure,
    to_csv,
)
from idiolect.reproduction.compared_number import ComparedNumber
from idiolect.reproduction.papers import PaperFigure
from idiolect.reproduction.request import ReproductionRequest

__all__ = ["DRAWINGS", "points_of_tables", "write_figure_files"]


def write_figure_files(
    points: pd.DataFrame, figure: PaperFigure, folder: Path, request: ReproductionRequest
) -> None:
    """Writes ``<id>-points.csv``, and ``<id>.png`` or the formats that are asked for."""
    write_atomically(folder / f"{figure.id}-points.csv", to_csv(points))
    title = f"{figure.id} (quick)" if request.quick else figure.id
    for kind in request.formats:
        picture = DRAWINGS[figure.kind](points, figure, title)
        write_atomically(folder / f"{figure.id}.{kind}", image(picture, kind))


def points_of_tables(numbers: Sequence[ComparedNumber], tables: Sequence[str]) -> pd.DataFrame:
    """Returns a row for every method that was measured: `method`, `aggregation`, `personalisation` in [0, 1]."""
    found = {(one.row, one.column): one.value for one in numbers}
    lines = []
    for row in dict.fromkeys(one.row for one in numbers):
        shared, own = (found.get((row, id)) for id in tables)
        if own is not None:
            lines.append((row, float("nan") if shared is None else shared / 100, own / 100))
    table = pd.DataFrame(lines, columns=["method", "aggregation", "personalisation"])
    return table.assign(aggregation_sd_seeds=float("nan"), personalisation_sd_seeds=float("nan"))


def _over_rounds(points: pd.DataFrame, figure: PaperFigure, title: str) -> Picture:
    """Draws means over seeds, with the SD over clients as a band; each metric has panels of its own."""
    kept = [name for name in ("value", "sd") if name in points]
    means = points.groupby(["panel", "metric", "line", "round"], sort=False)[kept].mean().reset_index()
    if means["metric"].nunique() > 1:
        means["panel"] = means["panel"] + ", " + means["metric"]
    mark = None if figure.mark is None else figure.mark * float(means["round"].max())
    return lines_figure(means.rename(columns={"round": "x"}), "Round", title, mark=mark)


def _profile(points: pd.DataFrame, figure: PaperFigure, title: str) -> Picture:
    """Draws a panel for every combination of what varies, with a line for every mixing scheme."""
    varied = [*figure.options, *figure.settings]
    text = [", ".join(f"{key}={line[key]}" for key in varied) for line in points[varied].to_dict("records")]
    named = points.assign(panel=text if varied else points["panel"], line=points["group"])
    means = named.groupby(["panel", "line", "alpha"], sort=False)[["value", "sd", "server"]].mean()
    columns = len(figure.options[varied[-1]] if varied[-1] in figure.options else figure.settings[varied[-1]])
    return profile_figure(means.reset_index(), title, columns=columns)


def _zigzag(points: pd.DataFrame, figure: PaperFigure, title: str) -> Picture:
    return before_after_figure(points.assign(panel=points["panel"] + ": " + points["line"]), title)


def _grid(points: pd.DataFrame, figure: PaperFigure, title: str) -> Picture:
    """Draws a heat map for every line and scenario; its title has the best compared method in square brackets."""
    column, row = figure.options
    own, compared = points[points[row].notna()], points[points[row].isna()]
    means = compared.groupby(["panel", "group", "line"], sort=False)["value"].mean()
    best = means.groupby(["panel", "group"]).max().to_dict()
    panels = [
        f"{panel}, {group}" + (f" [{best[panel, group]:.1f}]" if (panel, group) in best else "")
        for panel, group in own[["panel", "group"]].to_numpy()
    ]
    return heat_figure(own.assign(panel=panels, row=own[row], column=own[column]), row, column, title)


def _settings(points: pd.DataFrame, figure: PaperFigure, title: str) -> Picture:
    """Draws means over scenarios and seeds; colours distinguish the first option, shapes the others."""
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


def _clients(points: pd.DataFrame, figure: PaperFigure, title: str) -> Picture:
    means = points.groupby(["panel", "line", "client"], sort=False)["value"].mean().reset_index()
    metric = str(points["metric"].iloc[0]).capitalize()
    return bars_figure(means.rename(columns={"client": "x"}), "Client", metric, title)


def _users(points: pd.DataFrame, figure: PaperFigure, title: str) -> Picture:
    """Draws a panel for every client; the first option runs along x, the second distinguishes the lines."""
    x, line = figure.options
    means = points.groupby(["client", line, x], sort=False)["value"].mean().reset_index()
    named = means.assign(
        panel=[f"User {client}" for client in means["client"]],
        line=[f"{line}={value}" for value in means[line]],
        x=means[x],
    )
    return lines_figure(named, x, title, y_label="Test accuracy (%)")


def _change(points: pd.DataFrame, figure: PaperFigure, title: str) -> Picture:
    return change_figure(points.assign(panel=points["panel"] + ": " + points["line"]), title)


def _table(points: pd.DataFrame, figure: PaperFigure, title: str) -> Picture:
    """Draws the two tables of a paper against each other; what they measure is said by their readings."""
    shared, own = ("Aggregated model, official test set", "Personalised, selected clients, last round")
    return scatter_figure(
        points, labels=(f"{shared}, mean over scenes", f"{own}, mean over scenes"), title=title
    )


def _features(points: pd.DataFrame, figure: PaperFigure, title: str) -> Picture:
    """Draws the first of several seeds, because coordinates cannot be averaged."""
    return features_figure(points[points["seed"] == points["seed"].min()], title)


def _proxies(points: pd.DataFrame, figure: PaperFigure, title: str) -> Picture:
    means = points.groupby(["panel", "line", "x"], sort=False)["value"].mean().reset_index()
    return lines_figure(means, "Epoch", title)


def _subsets(points: pd.DataFrame, figure: PaperFigure, title: str) -> Picture:
    means = points.groupby(["panel", "line", "x"], sort=False)["value"].mean().reset_index()
    return bars_figure(means.sort_values("x", kind="stable"), "Target classes", "Accuracy (%)", title)


DRAWINGS: dict[str, Callable[[pd.DataFrame, PaperFigure, str], Picture]] = {
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
    "features": _features,
    "proxies": _proxies,
    "subsets": _subsets,
}
