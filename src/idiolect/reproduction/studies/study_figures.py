"""Reproduces the figures that are made of studies: their points, and a number for each of their lines."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from idiolect.data.availability import availability
from idiolect.experiments.execution import Execution
from idiolect.records import Run
from idiolect.reproduction.compared_number import ComparedNumber
from idiolect.reproduction.papers import PaperFigure
from idiolect.reproduction.pictures import write_figure_files
from idiolect.reproduction.reproduction_result import Reproduction, write_reproduction
from idiolect.reproduction.request import ReproductionRequest, refuse_unknown_names
from idiolect.reproduction.studies.head_observations import DISTANCES
from idiolect.reproduction.studies.head_study import FigureStudy, studies_of
from idiolect.reproduction.studies.training import run_study

__all__ = ["STUDY_KINDS", "reproduce_study_figure"]

STUDY_KINDS = {
    "features": "accuracy on the observed classes, last epoch",
    "proxies": "last epoch",
    "subsets": "accuracy on the target classes, last epoch",
}


def reproduce_study_figure(
    figure: PaperFigure, request: ReproductionRequest, execution: Execution
) -> Reproduction:
    """Runs the studies of a figure, or of some of its scenarios; writes numbers, points and picture."""
    refuse_unknown_names("scenario", request.columns, figure.scenarios)
    points, missing, drawn = _points_of_figure(figure, request, execution)
    numbers = [*_line_numbers(figure.kind, points), *dict.fromkeys(missing)]
    notes = [f"a line's number: {STUDY_KINDS[figure.kind]}", *figure.notes, *drawn]
    if figure.kind == "features" and len(points):
        points, dead = with_dead_features_named(points)
        notes += dead
        for note in dead:
            execution.watcher.say(f"warning: {note}")
    done, folder = write_reproduction(figure.id, figure.caption, numbers, notes, request, execution.out)
    if len(points):
        write_figure_files(points, figure, folder, request)
    return done


def with_dead_features_named(points: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Returns the points with panels that name dead features, and a note on each.

    A feature is dead where it has the same value for all samples, as behind a ReLU that is never above zero; the
    network then learns nothing through it.
    """
    titles, notes = points["panel"].copy(), []
    for (panel, seed), here in points.groupby(["panel", "seed"], sort=False):
        samples = here[here["what"] == "sample"]
        dead = [axis for axis, name in enumerate("xy") if len(samples) and samples[name].nunique() == 1]
        if not dead:
            continue
        titles[here.index] = f"{panel} (dead: {' and '.join(f'feature {axis}' for axis in dead)})"
        what = "both features are" if len(dead) == 2 else f"feature {dead[0]} is"
        follows = "the network has learnt nothing" if len(dead) == 2 else "the samples lie on a line"
        notes.append(
            f"{panel}, seed {seed}: {what} the same for all samples, so that {follows}; try more seeds"
        )
    return points.assign(panel=titles), notes


def _points_of_figure(
    figure: PaperFigure, request: ReproductionRequest, execution: Execution
) -> tuple[pd.DataFrame, list[ComparedNumber], list[str]]:
    """Returns the points of all studies, a number without value for each whose data are missing, and their notes."""
    chosen = tuple(name for name in figure.scenarios if not request.columns or name in request.columns)
    points, missing, notes = [], [], []
    for seed in request.seeds:
        for one in studies_of(figure.kind, chosen, seed, request.quick):
            data = availability(one.study.dataset, execution.data_dir)
            if not data.present:
                reason = f"{data.dataset} is not on this machine; {data.advice}"
                missing.append(ComparedNumber(one.label, one.scenario, missing=reason))
                continue
            run = run_study(one.study, execution)
            notes += [f"{one.label}, seed {seed}: {note}" for note in run.manifest["notes"]]
            points.append(POINTS_OF_STUDY[figure.kind](one, run).assign(scenario=one.scenario, seed=seed))
    return pd.concat(points, ignore_index=True) if points else pd.DataFrame(), missing, notes


def _line_numbers(kind: str, points: pd.DataFrame) -> list[ComparedNumber]:
    if points.empty:
        return []
    if kind == "features":
        by_seed = points.drop_duplicates(["panel", "scenario", "seed"]).assign(
            line=lambda first: first["panel"], value=lambda first: first["accuracy"]
        )
    elif kind == "proxies":
        last = points[points["x"] == points["x"].max()]
        by_seed = last.assign(line=last["panel"] + ", " + last["line"])
    else:
        by_seed = points.assign(line=[f"{line}, {x} classes" for line, x in points[["line", "x"]].to_numpy()])
    unit = "" if kind == "proxies" else "%"
    return [
        ComparedNumber(str(line), str(scenario), unit=unit).measured(list(group["value"]))
        for (line, scenario), group in by_seed.groupby(["line", "scenario"], sort=False)
    ]


def _features(figure_study: FigureStudy, run: Run) -> pd.DataFrame:
    """Returns samples and proxies: `panel`, `what`, `label`, `x`, `y`, `observed`, and the `accuracy` in percent."""
    rows = run.rows[run.rows["moment"] == "end"]
    wide = rows.pivot(index=["predictor", "client"], columns="metric", values="value").reset_index()
    samples = wide[wide["predictor"] == "features"]
    proxies = wide[wide["predictor"] == "head"]
    sample_points = {
        "what": "sample",
        "label": samples["label"].astype(int),
        "x": samples["feature 0"],
        "y": samples["feature 1"],
        "observed": True,
    }
    proxy_points = {
        "what": "proxy",
        "label": proxies["client"],
        "x": proxies["proxy 0"],
        "y": proxies["proxy 1"],
        "observed": proxies["client"] < figure_study.study.observed,
    }
    points = pd.concat([pd.DataFrame(sample_points), pd.DataFrame(proxy_points)], ignore_index=True)
    accuracy = float(_subsets(figure_study, run)["value"].iloc[-1])
    return points.assign(panel=figure_study.label, accuracy=accuracy)


def _proxies(figure_study: FigureStudy, run: Run) -> pd.DataFrame:
    """Returns by epoch the mean norms over observed and over missing classes, and mean distances."""
    tables = []
    for metric, panel in (("proxy norm", "Proxy norm"), ("gradient norm", "Gradient norm")):
        rows = run.rows[run.rows["metric"] == metric]
        side = rows["client"].lt(figure_study.study.observed).map({True: "observed", False: "missing"})
        means = rows.groupby(["round", side.rename("line")])["value"].mean().reset_index()
        tables.append(means.assign(panel=panel))
    for name in DISTANCES.values():
        rows = run.rows[run.rows["metric"] == f"distance {name}"]
        tables.append(rows[["round", "value"]].assign(panel="Mean distance", line=name))
    return pd.concat(tables, ignore_index=True).rename(columns={"round": "x"})


def _subsets(figure_study: FigureStudy, run: Run) -> pd.DataFrame:
    """Returns the accuracy on each target after the last epoch: `line`, `x` (classes), `value` in percent."""
    rows = run.rows[(run.rows["metric"] == "accuracy") & (run.rows["round"] == run.rows["round"].max())]
    classes = rows["predictor"].str.extract(r"target\((\d+)\)")[0].astype(int)
    points = {"panel": "Target classes alone", "line": figure_study.label, "x": classes}
    return pd.DataFrame({**points, "value": 100 * rows["value"]})


POINTS_OF_STUDY: dict[str, Callable[[FigureStudy, Run], pd.DataFrame]] = {
    "features": _features,
    "proxies": _proxies,
    "subsets": _subsets,
}
